package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	ours = "forge.example/local"
	node = "node-1"
	// There is one claim in each test; these are its unique id, and so its folder, and its volume.
	folder     = "uid-of-claim"
	volumeName = "pvc-" + folder
)

func classNamed(name string, mode storage.VolumeBindingMode, change ...func(*storage.StorageClass)) *storage.StorageClass {
	class := &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: name}, Provisioner: ours, VolumeBindingMode: &mode}
	for _, apply := range change {
		apply(class)
	}
	return class
}

// claimNamed is a claim as the controller manager leaves it when it wants a volume from us.
func claimNamed(name, class string, change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: meta.ObjectMeta{
			Namespace: "team", Name: name, UID: folder,
			Annotations: map[string]string{wantedProvisioner: ours},
		},
		Spec: core.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("3Gi")}},
		},
		Status: core.PersistentVolumeClaimStatus{Phase: core.ClaimPending},
	}
	for _, apply := range change {
		apply(claim)
	}
	return claim
}

type provisionerFixture struct {
	*provisioner
	client *fake.Clientset
	root   string
}

// startProvisioner runs one against a fake API server until the test ends or it is stopped.
func startProvisioner(t *testing.T, client *fake.Clientset, root string) (*provisionerFixture, func()) {
	t.Helper()
	p, err := newProvisioner(client, place{provisioner: ours, node: node, root: root})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the provisioner did not stop")
		}
	}
	t.Cleanup(stop)
	f := &provisionerFixture{provisioner: p, client: client, root: root}
	eventually(t, "the provisioner is healthy", func() bool { return f.healthStatus() == http.StatusOK })
	return f, stop
}

func (f *provisionerFixture) healthStatus() int {
	recorder := httptest.NewRecorder()
	f.health(recorder, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	return recorder.Code
}

func (f *provisionerFixture) volumeNow(t *testing.T, name string) *core.PersistentVolume {
	t.Helper()
	volume, err := f.client.CoreV1().PersistentVolumes().Get(t.Context(), name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return volume
}

// settle waits until nothing is open: all that was seen so far has been dealt with.
func (f *provisionerFixture) settle(t *testing.T) {
	t.Helper()
	eventually(t, "all work is done", func() bool {
		open, _ := f.progress.stalled()
		return open == 0 && f.queue.Len() == 0
	})
}

func (f *provisionerFixture) events(t *testing.T, reason string) []string {
	t.Helper()
	events, err := f.client.CoreV1().Events("").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, event := range events.Items {
		if event.Reason == reason {
			messages = append(messages, event.InvolvedObject.Kind+" "+event.InvolvedObject.Name+": "+event.Message)
		}
	}
	return messages
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestImmediateClaimGetsAFolderAndAVolume(t *testing.T) {
	root := filepath.Join(t.TempDir(), "volumes")
	retain := core.PersistentVolumeReclaimRetain
	client := fake.NewClientset(
		classNamed("local", storage.VolumeBindingImmediate, func(c *storage.StorageClass) {
			c.ReclaimPolicy = &retain
			c.MountOptions = []string{"noatime"}
		}),
		claimNamed("data", "local", func(c *core.PersistentVolumeClaim) {
			c.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce, core.ReadOnlyMany}
		}))
	f, _ := startProvisioner(t, client, root)
	eventually(t, "the volume is there", func() bool { return f.volumeNow(t, volumeName) != nil })

	volume := f.volumeNow(t, volumeName)
	expect(t, "annotation", volume.Annotations["pv.kubernetes.io/provisioned-by"], ours)
	expect(t, "path", volume.Spec.Local.Path, filepath.Join(root, folder))
	expect(t, "claim", *volume.Spec.ClaimRef, core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data", UID: folder})
	expect(t, "capacity", volume.Spec.Capacity.Storage().String(), "3Gi")
	expect(t, "access modes", slices.Equal(volume.Spec.AccessModes, []core.PersistentVolumeAccessMode{core.ReadWriteOnce, core.ReadOnlyMany}), true)
	expect(t, "reclaim policy", volume.Spec.PersistentVolumeReclaimPolicy, retain)
	expect(t, "mount options", strings.Join(volume.Spec.MountOptions, ","), "noatime")
	expect(t, "class", volume.Spec.StorageClassName, "local")
	required := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	expect(t, "node", required.Key+" "+string(required.Operator)+" "+strings.Join(required.Values, ","), "kubernetes.io/hostname In "+node)

	info, err := os.Stat(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "mode of the folder", info.Mode(), os.ModeDir|0o777)
	eventually(t, "the claim has an event", func() bool { return len(f.events(t, "ProvisioningSucceeded")) == 1 })
}

func TestDelayedClaimWaitsForThisNode(t *testing.T) {
	root := t.TempDir()
	claim := claimNamed("data", "local")
	client := fake.NewClientset(classNamed("local", storage.VolumeBindingWaitForFirstConsumer), claim)
	f, _ := startProvisioner(t, client, root)
	for _, elsewhere := range []string{"", "node-2"} {
		claim.Annotations[selectedNode] = elsewhere
		if _, err := client.CoreV1().PersistentVolumeClaims("team").Update(t.Context(), claim, meta.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the change is seen", func() bool {
			seen, err := f.claims.PersistentVolumeClaims("team").Get("data")
			return err == nil && seen.Annotations[selectedNode] == elsewhere
		})
		f.settle(t)
		expect(t, "volume for node `"+elsewhere+"`", f.volumeNow(t, volumeName) == nil, true)
		expect(t, "folder for node `"+elsewhere+"`", exists(filepath.Join(root, folder)), false)
	}
	claim.Annotations[selectedNode] = node
	if _, err := client.CoreV1().PersistentVolumeClaims("team").Update(t.Context(), claim, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is there", func() bool { return f.volumeNow(t, volumeName) != nil })
}

func TestClassThatComesLateIsEnough(t *testing.T) {
	client := fake.NewClientset(claimNamed("data", "local"))
	f, _ := startProvisioner(t, client, t.TempDir())
	f.settle(t)
	if _, err := client.StorageV1().StorageClasses().Create(t.Context(), classNamed("local", storage.VolumeBindingImmediate), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is there", func() bool { return f.volumeNow(t, volumeName) != nil })
}

func TestClaimsThatAreNotOursAreLeftAlone(t *testing.T) {
	at := place{provisioner: ours, node: node, root: "/volumes"}
	now := meta.Now()
	for what, change := range map[string]func(*core.PersistentVolumeClaim, *storage.StorageClass){
		"class of another provisioner": func(_ *core.PersistentVolumeClaim, class *storage.StorageClass) { class.Provisioner = "other" },
		"bound already":                func(claim *core.PersistentVolumeClaim, _ *storage.StorageClass) { claim.Spec.VolumeName = "v" },
		"in deletion":                  func(claim *core.PersistentVolumeClaim, _ *storage.StorageClass) { claim.DeletionTimestamp = &now },
		"lost its volume": func(claim *core.PersistentVolumeClaim, _ *storage.StorageClass) {
			claim.Status.Phase = core.ClaimLost
		},
		"not yet decided by the controller manager": func(claim *core.PersistentVolumeClaim, _ *storage.StorageClass) { claim.Annotations = nil },
	} {
		claim, class := claimNamed("data", "local"), classNamed("local", storage.VolumeBindingImmediate)
		expect(t, "before: "+what, at.wants(claim, class), true)
		change(claim, class)
		expect(t, what, at.wants(claim, class), false)
	}
}

func TestClaimsThatCannotBeServedSayWhyAndAreNotRetried(t *testing.T) {
	block := core.PersistentVolumeBlock
	for reason, change := range map[string]func(*core.PersistentVolumeClaim){
		"volume mode `Block`": func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &block },
		"selector":            func(c *core.PersistentVolumeClaim) { c.Spec.Selector = &meta.LabelSelector{} },
		"data source":         func(c *core.PersistentVolumeClaim) { c.Spec.DataSource = &core.TypedLocalObjectReference{} },
		"requests no storage": func(c *core.PersistentVolumeClaim) { c.Spec.Resources.Requests = nil },
		"name of a folder":    func(c *core.PersistentVolumeClaim) { c.UID = "../../etc" },
	} {
		root := t.TempDir()
		client := fake.NewClientset(classNamed("local", storage.VolumeBindingImmediate), claimNamed("data", "local", change))
		f, stop := startProvisioner(t, client, root)
		eventually(t, "event: "+reason, func() bool {
			events := f.events(t, "ProvisioningFailed")
			return len(events) == 1 && strings.Contains(events[0], reason) && strings.HasPrefix(events[0], "PersistentVolumeClaim data: ")
		})
		f.settle(t)
		entries, _ := os.ReadDir(root)
		expect(t, "folders: "+reason, len(entries), 0)
		stop()
	}
}

func TestFailureIsAnEventAndIsTriedAgain(t *testing.T) {
	client := fake.NewClientset(classNamed("local", storage.VolumeBindingImmediate), claimNamed("data", "local"))
	failures := 3
	client.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("no room in the store")
	})
	f, _ := startProvisioner(t, client, t.TempDir())
	eventually(t, "the volume is there", func() bool { return f.volumeNow(t, volumeName) != nil })
	eventually(t, "the claim has an event", func() bool {
		events := f.events(t, "ProvisioningFailed")
		return len(events) == 1 && strings.Contains(events[0], "no room in the store")
	})
	f.settle(t)
}

func TestProvisionerThatWasKilledGoesOn(t *testing.T) {
	for what, before := range map[string]func(t *testing.T, root string, client *fake.Clientset){
		"after the folder": func(t *testing.T, root string, _ *fake.Clientset) {
			if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"after the volume": func(t *testing.T, root string, client *fake.Clientset) {
			at := place{provisioner: ours, node: node, root: root}
			volume, err := at.volume(claimNamed("data", "local"), classNamed("local", storage.VolumeBindingImmediate))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), volume, meta.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			client := fake.NewClientset(classNamed("local", storage.VolumeBindingImmediate), claimNamed("data", "local"))
			before(t, root, client)
			f, _ := startProvisioner(t, client, root)
			eventually(t, "the volume is there", func() bool { return f.volumeNow(t, volumeName) != nil })
			f.settle(t)
			info, err := os.Stat(filepath.Join(root, folder))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "mode of the folder", info.Mode(), os.ModeDir|0o777)
			expect(t, "failures", len(f.events(t, "ProvisioningFailed")), 0)
		})
	}
}

func TestVolumeOfAnotherClaimIsNotTaken(t *testing.T) {
	client := fake.NewClientset(classNamed("local", storage.VolumeBindingImmediate), claimNamed("data", "local"),
		&core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: volumeName}})
	f, _ := startProvisioner(t, client, t.TempDir())
	eventually(t, "the claim has an event", func() bool {
		events := f.events(t, "ProvisioningFailed")
		return len(events) > 0 && strings.Contains(events[0], "belongs to another claim")
	})
}

// releasedVolume is what is left when the claim is deleted.
func releasedVolume(t *testing.T, root string, change ...func(*core.PersistentVolume)) *core.PersistentVolume {
	t.Helper()
	at := place{provisioner: ours, node: node, root: root}
	volume, err := at.volume(claimNamed("data", "local"), classNamed("local", storage.VolumeBindingImmediate))
	if err != nil {
		t.Fatal(err)
	}
	volume.Status.Phase = core.VolumeReleased
	for _, apply := range change {
		apply(volume)
	}
	return volume
}

// fill makes a folder with a file, a folder and a link out of the root.
func fill(t *testing.T, path, outside string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "deep", "file"), "data")
	if err := os.Symlink(outside, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
}

func TestReleasedVolumeGoesWithItsFolderAndNothingElse(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "kept"), "kept")
	fill(t, filepath.Join(root, folder), outside)
	fill(t, filepath.Join(root, "another"), outside)
	f, _ := startProvisioner(t, fake.NewClientset(releasedVolume(t, root)), root)
	eventually(t, "the volume is gone", func() bool { return f.volumeNow(t, volumeName) == nil })
	expect(t, "folder", exists(filepath.Join(root, folder)), false)
	expect(t, "folder of another", exists(filepath.Join(root, "another", "deep", "file")), true)
	expect(t, "file behind the link", exists(filepath.Join(outside, "kept")), true)
}

func TestReleasedVolumeWhoseFolderIsGoneGoesToo(t *testing.T) {
	root := t.TempDir()
	f, _ := startProvisioner(t, fake.NewClientset(releasedVolume(t, root)), root)
	eventually(t, "the volume is gone", func() bool { return f.volumeNow(t, volumeName) == nil })
}

func TestVolumesThatStayStayWithTheirFolder(t *testing.T) {
	for what, change := range map[string]func(*core.PersistentVolume){
		"retained": func(v *core.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
		},
		"in use":                 func(v *core.PersistentVolume) { v.Status.Phase = core.VolumeBound },
		"of another provisioner": func(v *core.PersistentVolume) { v.Annotations[provisionedBy] = "other" },
		"on another node": func(v *core.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-2"}
		},
	} {
		root := t.TempDir()
		fill(t, filepath.Join(root, folder), root)
		f, stop := startProvisioner(t, fake.NewClientset(releasedVolume(t, root, change)), root)
		f.settle(t)
		expect(t, "volume: "+what, f.volumeNow(t, volumeName) != nil, true)
		expect(t, "folder: "+what, exists(filepath.Join(root, folder, "deep", "file")), true)
		stop()
	}
}

func TestVolumeThatNamesAnotherFolderIsNotReclaimed(t *testing.T) {
	for _, path := range []string{"", "..", "../outside", "another", folder + "/..", folder + "/deep", "."} {
		root := t.TempDir()
		fill(t, filepath.Join(root, folder), root)
		fill(t, filepath.Join(root, "another"), root)
		volume := releasedVolume(t, root, func(v *core.PersistentVolume) { v.Spec.Local.Path = root + "/" + path })
		f, stop := startProvisioner(t, fake.NewClientset(volume), root)
		eventually(t, "event for path `"+path+"`", func() bool { return len(f.events(t, "VolumeFailedDelete")) == 1 })
		expect(t, "volume", f.volumeNow(t, volumeName) != nil, true)
		expect(t, "folder", exists(filepath.Join(root, folder, "deep", "file")), true)
		expect(t, "folder of another", exists(filepath.Join(root, "another", "deep", "file")), true)
		stop()
	}
}

func TestStaleReleaseDoesNotDestroyData(t *testing.T) {
	root := t.TempDir()
	fill(t, filepath.Join(root, folder), root)
	// The watch says released, the server says that it was given out again.
	client := fake.NewClientset(releasedVolume(t, root))
	client.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, releasedVolume(t, root, func(v *core.PersistentVolume) { v.Status.Phase = core.VolumeBound }), nil
	})
	f, _ := startProvisioner(t, client, root)
	f.settle(t)
	expect(t, "folder", exists(filepath.Join(root, folder, "deep", "file")), true)
}

func TestFolderThatIsALinkIsNeitherUsedNorFollowed(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "kept"), "kept")
	if err := os.Symlink(outside, filepath.Join(root, folder)); err != nil {
		t.Fatal(err)
	}
	folders, err := openFolders(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := folders.make(folder); err == nil {
		t.Error("a link was taken for a folder")
	}
	if err := folders.remove(folder); err != nil {
		t.Error(err)
	}
	expect(t, "link", exists(filepath.Join(root, folder)), false)
	expect(t, "file behind the link", exists(filepath.Join(outside, "kept")), true)
}

func TestStartSweepsEmptyFoldersThatNobodyOwns(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"orphan", "with-data", folder, "of-volume", ".hidden"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "with-data", "file"), "data")
	client := fake.NewClientset(claimNamed("data", "absent"), &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pvc-of-volume"}})
	startProvisioner(t, client, root)
	eventually(t, "the orphan is gone", func() bool { return !exists(filepath.Join(root, "orphan")) })
	for _, name := range []string{"with-data", folder, "of-volume", ".hidden"} {
		expect(t, name, exists(filepath.Join(root, name)), true)
	}
}

func TestHealthNeedsTheCachesAndProgress(t *testing.T) {
	client := fake.NewClientset()
	p, err := newProvisioner(client, place{provisioner: ours, node: node, root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f := &provisionerFixture{provisioner: p}
	expect(t, "before the caches are filled", f.healthStatus(), http.StatusServiceUnavailable)

	p.synced = nil
	clock := time.Now()
	p.progress.now = func() time.Time { return clock }
	expect(t, "idle", f.healthStatus(), http.StatusOK)
	p.progress.opened(task{"team", "one"})
	p.progress.opened(task{"team", "two"})
	clock = clock.Add(stuckAfter)
	expect(t, "busy", f.healthStatus(), http.StatusOK)
	clock = clock.Add(time.Second)
	expect(t, "stuck", f.healthStatus(), http.StatusServiceUnavailable)
	p.progress.closed(task{"team", "one"})
	expect(t, "one is done", f.healthStatus(), http.StatusOK)
	clock = clock.Add(2 * stuckAfter)
	expect(t, "the other is stuck", f.healthStatus(), http.StatusServiceUnavailable)
	p.progress.closed(task{"team", "two"})
	clock = clock.Add(2 * stuckAfter)
	expect(t, "all is done", f.healthStatus(), http.StatusOK)
}

func TestProvisionerProcessWithoutAnAPIServerIsUnhealthyAndStops(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`)
	p := start(t, "provisioner", "--kubeconfig", kubeconfig, "--root", t.TempDir(), "--node", node, "--listen", "127.0.0.1:0")
	status, _, _ := call(t, http.MethodGet, p.url+"/healthz", "")
	expect(t, "health", status, http.StatusServiceUnavailable)
	expect(t, "exit code", p.terminate(t), 0)
}
