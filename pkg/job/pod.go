package job

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// command is the program of a task in the image.
func command(task v1alpha1.ReportTask) []string {
	if task == v1alpha1.TaskWitness {
		return []string{"/witness"}
	}
	return []string{"/mover", strings.ToLower(string(task))}
}

func podSpec(account, image string, s Spec) corev1.PodSpec {
	volumes, mounts, devices := volumesOf(s.Mounts)
	if len(s.Audiences) > 0 {
		volumes = append(volumes, tokens(s.Audiences))
		mounts = append(mounts, corev1.VolumeMount{Name: "tokens", MountPath: PathTokens, ReadOnly: true})
	}
	spec := corev1.PodSpec{
		ServiceAccountName:           account,
		AutomountServiceAccountToken: ptr(true),
		EnableServiceLinks:           ptr(false),
		RestartPolicy:                corev1.RestartPolicyNever,
		PriorityClassName:            PriorityClass,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser:      ptr(User),
			RunAsGroup:     ptr(User),
			RunAsNonRoot:   ptr(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:                     Role(s.Task),
			Image:                    image,
			ImagePullPolicy:          corev1.PullIfNotPresent,
			Command:                  command(s.Task),
			Env:                      env(s),
			Resources:                resources(s.Task),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts:             append(mounts, corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"}),
			VolumeDevices:            devices,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr(false),
				ReadOnlyRootFilesystem:   ptr(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
		Volumes: append(volumes, corev1.Volume{
			Name:         "tmp",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}),
	}
	if s.OwnVolumes {
		spec.SecurityContext.FSGroup = ptr(User)
		spec.SecurityContext.FSGroupChangePolicy = ptr(corev1.FSGroupChangeOnRootMismatch)
	}
	place(&spec, s.Placement)
	keepApart(&spec, s)
	return spec
}

// keepApart has the scheduler put no two pods of one store and slot on one node, so that a node has as many as there are
// slots. One whose volumes are on a node where its slot is taken waits as a pod.
func keepApart(spec *corev1.PodSpec, s Spec) {
	if s.Store == "" || s.Slot == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				v1alpha1.LabelStore: s.Store, v1alpha1.LabelNodeSlot: strconv.Itoa(int(s.Slot)),
			}},
			TopologyKey: corev1.LabelHostname,
		}},
	}
}

// place ties the pod to a node by affinity, not by nodeName: the scheduler must still see the
// claims. It tolerates what the launcher tolerates, and a cordoned node, but no eviction.
func place(spec *corev1.PodSpec, p *Placement) {
	if p == nil {
		return
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{p.NodeName},
				}},
			}},
		},
	}}
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	spec.Tolerations = append(spec.Tolerations, p.Tolerations...)
	spec.SecurityContext.SELinuxOptions = p.SELinux
	spec.SecurityContext.SELinuxChangePolicy = p.SELinuxChangePolicy
}

func env(s Spec) []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}}
	}
	return []corev1.EnvVar{
		{Name: EnvConfig, Value: string(s.Config)},
		{Name: EnvReport, Value: s.Name},
		field(EnvNamespace, "metadata.namespace"),
		field(EnvPodUID, "metadata.uid"),
	}
}

// resources are small for all but export and import, whose memory is bounded by their buffers.
func resources(task v1alpha1.ReportTask) corev1.ResourceRequirements {
	cpu, memory, limit := "10m", "32Mi", "128Mi"
	switch task {
	case v1alpha1.TaskExport, v1alpha1.TaskImport, v1alpha1.TaskVerify, v1alpha1.TaskMaintain:
		cpu, memory, limit = "100m", "128Mi", "512Mi"
	case v1alpha1.TaskSetup, v1alpha1.TaskResolve, v1alpha1.TaskCatalogue:
		limit = "256Mi"
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
	}
}

func volumesOf(mounts []Mount) ([]corev1.Volume, []corev1.VolumeMount, []corev1.VolumeDevice) {
	var volumes []corev1.Volume
	var folders []corev1.VolumeMount
	var devices []corev1.VolumeDevice
	for i, m := range mounts {
		name := "v" + strconv.Itoa(i)
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: source(m)})
		if m.Block {
			devices = append(devices, corev1.VolumeDevice{Name: name, DevicePath: m.Path})
			continue
		}
		folders = append(folders, corev1.VolumeMount{Name: name, MountPath: m.Path, ReadOnly: m.ReadOnly || m.Claim == ""})
	}
	return volumes, folders, devices
}

// tokenSeconds is the life of a token; the kubelet renews it long before. It is the least that
// the API allows.
const tokenSeconds = 600

// tokens is a folder with a token for each audience, named by its number.
func tokens(audiences []string) corev1.Volume {
	projected := &corev1.ProjectedVolumeSource{}
	for i, audience := range audiences {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: audience, ExpirationSeconds: ptr(int64(tokenSeconds)), Path: strconv.Itoa(i),
			},
		})
	}
	return corev1.Volume{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: projected}}
}

func source(m Mount) corev1.VolumeSource {
	switch {
	case m.Secret != "":
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: m.Secret, Optional: ptr(m.Optional)}}
	case m.Audience != "":
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: m.Audience, Path: TokenName},
		}}}}
	case m.ConfigMap != "":
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: m.ConfigMap}, Optional: ptr(m.Optional),
		}}
	default:
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Claim}}
	}
}

func ptr[T any](v T) *T { return &v }
