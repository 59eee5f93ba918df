package restore

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Need is an object that the machine refers to and that a backup does not hold.
type Need struct{ Kind, Namespace, Name string }

// Kinds of needs.
const (
	NeedSecret              = "Secret"
	NeedConfigMap           = "ConfigMap"
	NeedServiceAccount      = "ServiceAccount"
	NeedNetwork             = "NetworkAttachmentDefinition"
	NeedInstancetype        = "VirtualMachineInstancetype"
	NeedClusterInstancetype = "VirtualMachineClusterInstancetype"
	NeedPreference          = "VirtualMachinePreference"
	NeedClusterPreference   = "VirtualMachineClusterPreference"
)

// Needs of the machine in the namespace that it is restored to, each once.
func Needs(m Machine, namespace string) []Need {
	var out []Need
	for _, r := range m.References {
		if !slices.Contains([]string{NeedSecret, NeedConfigMap, NeedServiceAccount, NeedNetwork}, r.Kind) {
			continue
		}
		n := Need{r.Kind, namespace, r.Name}
		if ns, name, elsewhere := strings.Cut(r.Name, "/"); elsewhere {
			n = Need{r.Kind, ns, name}
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// checkNeeds lists what the machine refers to and does not find here. A Secret cannot
// be looked at, so that it is needed is said in any case.
func checkNeeds(in Observed) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for _, n := range Needs(*in.Machine, in.Restore.Namespace) {
		present, known := in.Cluster.Present[n]
		check := n.Kind + "/" + n.Name
		switch {
		case !known:
			out = append(out, warning(check, "the virtual machine needs %s %q in namespace %q: vmstate may not look whether it is there", n.Kind, n.Name, n.Namespace))
		case !present:
			out = append(out, failed(check, "the virtual machine needs %s %q, which namespace %q does not have: create it first", n.Kind, n.Name, n.Namespace))
		}
	}
	return out
}

// matcherNeeds are the instancetype and preference that the machine names.
func matcherNeeds(m Machine, namespace string) map[string]Need {
	out := map[string]Need{}
	if i := m.VM.Spec.Instancetype; i != nil {
		out["instancetype"] = matcherNeed(i.Kind, i.Name, namespace, NeedInstancetype, NeedClusterInstancetype)
	}
	if p := m.VM.Spec.Preference; p != nil {
		out["preference"] = matcherNeed(p.Kind, p.Name, namespace, NeedPreference, NeedClusterPreference)
	}
	return out
}

// matcherNeed reads KubeVirt's default: a matcher without a kind means the cluster's.
func matcherNeed(kind, name, namespace, namespaced, cluster string) Need {
	if strings.EqualFold(kind, namespaced) {
		return Need{namespaced, namespace, name}
	}
	return Need{cluster, "", name}
}

// MatcherNeeds lists instancetype and preference for those who look them up.
func MatcherNeeds(m Machine, namespace string) []Need {
	var out []Need
	for _, n := range matcherNeeds(m, namespace) {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Need) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}

// checkRevisions wants instancetype and preference as they were: from the backup's own
// revisions, else from this cluster, which may have others under the same name.
func checkRevisions(in Observed) []v1alpha1.Finding {
	m := *in.Machine
	names := m.revisionNames()
	var out []v1alpha1.Finding
	for field, need := range matcherNeeds(m, in.Restore.Namespace) {
		if m.revision(names[field]) != nil {
			continue
		}
		check := strings.ToUpper(field[:1]) + field[1:]
		present, known := in.Cluster.Present[need]
		if known && !present {
			out = append(out, failed(check, "the backup does not hold the revision of %s %q, and this cluster has no %s of that name: create it first", field, need.Name, need.Kind))
			continue
		}
		out = append(out, warning(check, "the backup does not hold the revision of %s %q: what this cluster has under that name is used, and may differ", field, need.Name))
	}
	slices.SortFunc(out, func(a, b v1alpha1.Finding) int { return strings.Compare(a.Check, b.Check) })
	return out
}

// oldestKubeVirt that finds a firmware state claim by its label (kubevirt.io/kubevirt 1.4,
// pkg/storage/backend-storage).
var oldestKubeVirt = [2]int{1, 4}

func checkKubeVirt(in Observed) []v1alpha1.Finding {
	here, ok := minor(in.Cluster.KubeVirtVersion)
	if !ok {
		return nil
	}
	if less(here, oldestKubeVirt) && in.Machine.State() != nil {
		return []v1alpha1.Finding{failed("KubeVirt", "KubeVirt %s does not find restored firmware state; 1.4 is the first that does", in.Cluster.KubeVirtVersion)}
	}
	there, ok := minor(in.Machine.KubeVirtVersion)
	if ok && less(here, there) && in.Machine.State() != nil {
		return []v1alpha1.Finding{warning("KubeVirt", "the backup was made under KubeVirt %d.%d, this is %s: an older swtpm may not read the TPM's state", there[0], there[1], in.Cluster.KubeVirtVersion)}
	}
	return nil
}

// versioned finds v1.9.0 in a version or in the name of an image.
var versioned = regexp.MustCompile(`(?:^|[v:])(\d+)\.(\d+)(?:\.|$|-)[^/]*$`)

func minor(version string) ([2]int, bool) {
	parts := versioned.FindStringSubmatch(version)
	if parts == nil {
		return [2]int{}, false
	}
	first, errFirst := strconv.Atoi(parts[1])
	second, errSecond := strconv.Atoi(parts[2])
	return [2]int{first, second}, errFirst == nil && errSecond == nil
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// checkCPU: a model that follows the node (host-model, host-passthrough) is not checked, as
// it may be another one at every start anyway.
func checkCPU(in Observed) []v1alpha1.Finding {
	model := in.Machine.Identity.CPUModel
	if model == "" || strings.HasPrefix(model, "host-") || len(in.Cluster.CPUModels) == 0 || slices.Contains(in.Cluster.CPUModels, model) {
		return nil
	}
	return []v1alpha1.Finding{failed("CPU", "the virtual machine has the CPU model %q, and no node of this cluster offers it", model)}
}
