package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/test/s3"
)

const maintenanceKeyName = "main-maintenance-key"

// cleaned is a site with two backups of one machine.
type cleaned struct {
	*site
	bucket      *s3store.Store
	goes, stays v1alpha1.CommitRef
	disk        []byte // what the second one holds
}

func newCleaned(t *testing.T, b s3.Bucket) *cleaned {
	t.Helper()
	server := s3.StartWith(t, b)
	c := &cleaned{site: siteOn(t, server.Options), disk: storetest.Bytes(2, 3<<20)}
	c.paths.MaintenanceKey = filepath.Join(t.TempDir(), "maintenance-key")
	var err error
	if c.bucket, err = s3store.New(server.Options); err != nil {
		t.Fatal(err)
	}
	if b.Locked {
		c.store.Lock = &config.Lock{Mode: string(objectstore.Governance), Days: 1}
	}
	code, got := c.run(t, v1alpha1.TaskSetup, "setup", c.setup())
	if code != exitDone {
		t.Fatalf("setup: exit code %d, %s", code, got.Message)
	}
	c.mountKeys(t, keysName)
	c.store.Checksum, c.store.SigningKey = got.Setup.ChecksumMode, got.Setup.SigningKey
	c.goes, c.stays = c.backup(t, "goes", storetest.Bytes(1, 3<<20)), c.backup(t, "stays", c.disk)
	return c
}

func (c *cleaned) image() string { return filepath.Join(c.paths.Volumes, "root", "disk.img") }

func (c *cleaned) backup(t *testing.T, uid string, disk []byte) v1alpha1.CommitRef {
	t.Helper()
	moment := v1alpha1.Moment{Disks: v1alpha1.DisksSingle, CutEnded: metav1.NowMicro()}
	facts := v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk, VolumeMode: "Filesystem", SizeBytes: 3 << 20}
	task := c.exportTask(t, moment, facts)
	task.BackupUID = uid
	write(t, c.image(), string(disk))
	code, got := c.run(t, v1alpha1.TaskExport, "export-"+uid, config.Config{Store: &c.store, Export: task})
	if code != exitDone || got.Export == nil {
		t.Fatalf("export %s: exit code %d, %s", uid, code, got.Message)
	}
	return got.Export.Commit
}

// pass is one Job of maintenance that removes the first backup.
func (c *cleaned) pass(t *testing.T, name string) v1alpha1.MaintenanceResult {
	t.Helper()
	code, got := c.run(t, v1alpha1.TaskMaintain, name, config.Config{Store: &c.store, Maintain: &config.Maintain{
		Remove: []config.Commit{{Key: c.goes.Key, Digest: c.goes.Digest}}, Known: []config.Commit{{Key: c.stays.Key, Digest: c.stays.Digest}},
		IntervalSeconds: 1, KeySecretName: maintenanceKeyName,
	}})
	if code != exitDone || got.Maintenance == nil || len(got.Maintenance.Held) > 0 {
		t.Fatalf("%s: exit code %d, %s, %+v", name, code, got.Message, got.Maintenance)
	}
	c.mount(t, maintenanceKeyName, c.paths.MaintenanceKey)
	t.Logf("%s: %+v", name, *got.Maintenance)
	return *got.Maintenance
}

// restored imports a backup, and tells whether its disk is as it was.
func (c *cleaned) restored(t *testing.T, ref v1alpha1.CommitRef, want []byte) bool {
	t.Helper()
	if err := os.Remove(c.image()); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	code, _ := c.run(t, v1alpha1.TaskImport, "import-"+ref.Key[len(ref.Key)-12:], config.Config{Store: &c.store, Import: &config.Import{
		Commit: &config.Commit{Key: ref.Key, Digest: ref.Digest}, Disks: []config.Disk{{Name: "root", Mode: config.Filesystem}},
	}})
	got, err := os.ReadFile(c.image())
	return code == exitDone && err == nil && string(got) == string(want)
}

// verified reads the whole store back, and returns how many backups it finds whole.
func (c *cleaned) verified(t *testing.T, name string) (whole int) {
	t.Helper()
	code, got := c.run(t, v1alpha1.TaskVerify, name, config.Config{Store: &c.store, Verify: &config.Verify{Parts: 1}})
	if code != exitDone || got.Verification == nil || !got.Verification.RoundDone || len(got.Verification.Damaged) > 0 {
		t.Fatalf("%s: exit code %d, %s, %+v", name, code, got.Message, got.Verification)
	}
	for _, b := range got.Verification.Backups {
		if !b.Damaged {
			whole++
		}
	}
	return whole
}

// versions of all objects of a backup's run that are in the bucket.
func (c *cleaned) versions(t *testing.T, ref v1alpha1.CommitRef) (out []objectstore.Version) {
	t.Helper()
	run := ref.Key[strings.LastIndexByte(ref.Key, '-')+1:]
	for v, err := range objectstore.Versions(t.Context(), c.bucket, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(v.Key, run) && !strings.HasPrefix(v.Key, "s/") && !strings.HasPrefix(v.Key, "t/") {
			out = append(out, v)
		}
	}
	return out
}

// TestMaintainJob: as the Jobs of a store run, on a real server, a backup that was deleted goes
// after the interval, whole, with its space; the other one stays whole.
func TestMaintainJob(t *testing.T) {
	for name, b := range map[string]s3.Bucket{"Plain": {}, "Versioned": {Versioned: true}} {
		t.Run(name, func(t *testing.T) {
			c := newCleaned(t, b)
			if n := c.verified(t, "verify-1"); n != 2 {
				t.Errorf("%d backups are whole before, want 2", n)
			}
			first := c.pass(t, "maintain-1")
			if len(first.Removed) > 0 || first.DeletedObjects > 0 || first.RetainedObjects > 0 {
				t.Errorf("before the interval: %+v", first)
			}
			time.Sleep(2 * time.Second)
			second := c.pass(t, "maintain-2")
			if len(second.Removed) != 1 || second.Removed[0].Key != c.goes.Key || second.FreedBytes < 3<<20 || second.LockedBytes > 0 {
				t.Errorf("after the interval: %+v", second)
			}
			if left := c.versions(t, c.goes); len(left) != 1 || left[0].Key != c.goes.Key {
				t.Errorf("what is left is more than the marker: %+v", left)
			}
			if n := c.verified(t, "verify-2"); n != 1 {
				t.Errorf("%d backups are whole after, want 1", n)
			}
			if !c.restored(t, c.stays, c.disk) {
				t.Error("the backup that stays does not restore")
			}
		})
	}
}

// TestMaintainLost: a record that somebody deleted by hand holds up the cleaning of its machine until it is said to be
// lost; then what only it needed goes, and the other backup stays whole.
func TestMaintainLost(t *testing.T) {
	c := newCleaned(t, s3.Bucket{})
	if err := c.bucket.Delete(t.Context(), c.goes.Key); err != nil {
		t.Fatal(err)
	}
	var sessions []string
	pass := func(name string, lost ...string) v1alpha1.MaintenanceResult {
		_, got := c.run(t, v1alpha1.TaskMaintain, name, config.Config{Store: &c.store, Maintain: &config.Maintain{
			Known: []config.Commit{{Key: c.goes.Key, Digest: c.goes.Digest}, {Key: c.stays.Key, Digest: c.stays.Digest}}, Lost: lost, Ended: sessions,
			IntervalSeconds: 1, KeySecretName: maintenanceKeyName,
		}})
		if got.Maintenance == nil {
			t.Fatalf("%s: %s", name, got.Message)
		}
		c.mount(t, maintenanceKeyName, c.paths.MaintenanceKey)
		sessions = got.Maintenance.Sessions
		t.Logf("%s: %+v", name, *got.Maintenance)
		time.Sleep(2 * time.Second)
		return *got.Maintenance
	}
	if held := pass("maintain-1").Held; len(held) != 1 || !strings.Contains(held[0].Message, c.goes.Key) || !strings.Contains(held[0].Message, "lost for good") {
		t.Errorf("held: %+v; want the machine whose record is gone, with that record", held)
	}
	freed := int64(0)
	for _, name := range []string{"maintain-2", "maintain-3", "maintain-4"} {
		r := pass(name, c.goes.Key)
		if len(r.Held) > 0 {
			t.Errorf("%s: held although it is said to be lost: %+v", name, r.Held)
		}
		freed += r.FreedBytes
	}
	if freed < 3<<20 {
		t.Errorf("%d bytes were freed, want what the lost backup alone needed", freed)
	}
	if !c.restored(t, c.stays, c.disk) {
		t.Error("the backup that stays does not restore")
	}
}

// TestMaintainLocked: what is locked waits, is told, and restores; its locks run out, while those
// of the other backup are extended.
func TestMaintainLocked(t *testing.T) {
	c := newCleaned(t, s3.Bucket{Locked: true})
	c.store.Lock.Days = 30 // locked for 31 days so far
	c.pass(t, "maintain-1")
	time.Sleep(2 * time.Second)
	second := c.pass(t, "maintain-2")
	if len(second.Removed) > 0 || second.LockedBytes == 0 || second.FreedBytes >= 3<<20 {
		t.Errorf("over what is locked: %+v", second)
	}
	if second.RetainedObjects == 0 || second.ExtendedObjects != 0 {
		t.Errorf("extended again: %+v", second)
	}
	for ref, want := range map[v1alpha1.CommitRef]bool{c.goes: false, c.stays: true} {
		n := 0
		for _, v := range c.versions(t, ref) {
			r, err := c.bucket.Retention(t.Context(), v.Key, v.ID)
			if err != nil {
				t.Fatal(err)
			}
			if v.Latest || v.Key != c.goes.Key {
				n++
			}
			if extended := time.Until(r.Until) > 59*24*time.Hour; extended != want && (v.Key != c.goes.Key || !v.Latest) {
				t.Errorf("%s is locked until %s", v.Key, r.Until.Format(time.DateOnly))
			}
		}
		if n < 3 {
			t.Errorf("%d objects of %s are there", n, ref.Key)
		}
	}
	if !c.restored(t, c.stays, c.disk) {
		t.Error("the backup that stays does not restore")
	}
}

// TestMaintainBesideImport: on a real server, with the Jobs as they run, a backup that is to go is removed only when the
// restore that is half way through it has ended.
func TestMaintainBesideImport(t *testing.T) {
	c := newCleaned(t, s3.Bucket{})
	direct := c.store.Endpoint
	to, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	task := config.Maintain{
		Remove: []config.Commit{{Key: c.goes.Key, Digest: c.goes.Digest}}, Known: []config.Commit{{Key: c.stays.Key, Digest: c.stays.Digest}},
		Readers: []string{"restore-uid"}, IntervalSeconds: 1, KeySecretName: maintenanceKeyName,
	}
	pass := func(name string) v1alpha1.MaintenanceResult {
		time.Sleep(1100 * time.Millisecond)
		store := c.store
		store.Endpoint = direct
		told := task
		code, got := c.run(t, v1alpha1.TaskMaintain, name, config.Config{Store: &store, Maintain: &told})
		if code != exitDone || got.Maintenance == nil || len(got.Maintenance.Held) > 0 {
			t.Errorf("%s: exit code %d, %s, %+v", name, code, got.Message, got.Maintenance)
			return v1alpha1.MaintenanceResult{}
		}
		c.mount(t, maintenanceKeyName, c.paths.MaintenanceKey)
		task.Ended = got.Maintenance.Sessions
		return *got.Maintenance
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/r/") {
			once.Do(func() { // the first pack is asked for: three passes go by
				for _, name := range []string{"beside-1", "beside-2", "beside-3"} {
					if got := pass(name); len(got.Removed) > 0 || len(got.Stay) != 1 {
						t.Errorf("%s: %+v", name, got)
					}
				}
			})
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	if err := os.Remove(c.image()); err != nil {
		t.Fatal(err)
	}
	c.store.Endpoint = front.URL
	code, got := c.run(t, v1alpha1.TaskImport, "import", config.Config{Store: &c.store, Import: &config.Import{
		Commit: &config.Commit{Key: c.goes.Key, Digest: c.goes.Digest}, Disks: []config.Disk{{Name: "root", Mode: config.Filesystem}}, Reader: "restore-uid",
	}})
	image, err := os.ReadFile(c.image())
	if code != exitDone || err != nil || string(image) != string(storetest.Bytes(1, 3<<20)) {
		t.Fatalf("import beside the removal: exit code %d, %s, %d bytes, %v", code, got.Message, len(image), err)
	}
	if len(task.Ended) != 2 { // of the two backups, which the Jobs are not told of
		t.Errorf("a reader that is alive is taken for one that nobody knows: %q", task.Ended)
	}
	pass("after-1")
	if after := pass("after-2"); len(after.Removed) != 1 || after.FreedBytes < 3<<20 {
		t.Errorf("once the restore has ended: %+v", after)
	}
	c.store.Endpoint = direct
	if !c.restored(t, c.stays, c.disk) {
		t.Error("the backup that stays does not restore")
	}
}
