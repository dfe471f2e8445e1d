package main

// What a claim makes of itself on this node: whether it is ours to serve, the volume it gets, and the folder behind that
// volume. Only the folder functions touch anything.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// The scheduler writes this one when it has placed the first pod that uses the claim.
	selectedNode = "volume.kubernetes.io/selected-node"
	// The controller manager writes one of these when no volume that exists fits the claim and a new one is wanted.
	// Before that, it may yet bind the claim to another volume.
	wantedProvisioner    = "volume.kubernetes.io/storage-provisioner"
	wantedProvisionerOld = "volume.beta.kubernetes.io/storage-provisioner"
	// We write this one, and know our volumes by it.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	hostname      = "kubernetes.io/hostname"

	volumePrefix = "pvc-"
)

// A place is where this provisioner makes volumes, and under which name.
type place struct {
	provisioner string
	node        string
	root        string
}

// wants says whether the claim asks for a volume here and now. False is no failure: another event will tell if that
// changes.
func (p place) wants(claim *core.PersistentVolumeClaim, class *storage.StorageClass) bool {
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" {
		return false
	}
	if claim.Status.Phase != "" && claim.Status.Phase != core.ClaimPending {
		return false
	}
	if class.Provisioner != p.provisioner {
		return false
	}
	if claim.Annotations[wantedProvisioner] != p.provisioner && claim.Annotations[wantedProvisionerOld] != p.provisioner {
		return false
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer {
		return claim.Annotations[selectedNode] == p.node
	}
	return true
}

// unservable is a claim that no retry will help; its text is what the user of the claim reads.
type unservable struct{ reason string }

func (u unservable) Error() string { return u.reason }

// volume builds what the claim gets. The same claim gives the same volume, so that it can be asked for again.
func (p place) volume(claim *core.PersistentVolumeClaim, class *storage.StorageClass) (*core.PersistentVolume, error) {
	size, sized := claim.Spec.Resources.Requests[core.ResourceStorage]
	switch {
	case !sized:
		return nil, unservable{"the claim requests no storage"}
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode != core.PersistentVolumeFilesystem:
		return nil, unservable{fmt.Sprintf("volume mode `%s` cannot be had here, only `%s`", *claim.Spec.VolumeMode, core.PersistentVolumeFilesystem)}
	case claim.Spec.Selector != nil:
		return nil, unservable{"a claim with a selector waits for a volume that exists, none is made for it"}
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return nil, unservable{"a new volume is always empty here, the claim names a data source"}
	}
	folder, err := folderName(string(claim.UID))
	if err != nil {
		return nil, unservable{err.Error()}
	}
	policy := core.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	mode := core.PersistentVolumeFilesystem
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{
			Name:        volumePrefix + folder,
			Annotations: map[string]string{provisionedBy: p.provisioner},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: size},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    &mode,
			PersistentVolumeReclaimPolicy: policy,
			MountOptions:                  class.MountOptions,
			StorageClassName:              class.Name,
			// Bound to this claim from the start: no other claim can take it.
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			// Local and not hostPath: it takes mount options, and a pod cannot land on a node without the folder.
			PersistentVolumeSource: core.PersistentVolumeSource{
				Local: &core.LocalVolumeSource{Path: filepath.Join(p.root, folder)},
			},
			NodeAffinity: p.affinity(),
		},
	}, nil
}

func (p place) affinity() *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{
			Key: hostname, Operator: core.NodeSelectorOpIn, Values: []string{p.node},
		}},
	}}}}
}

// reclaims says whether the volume was made here, is given up, and is to go with its data.
func (p place) reclaims(volume *core.PersistentVolume) bool {
	return volume.Annotations[provisionedBy] == p.provisioner &&
		equality.Semantic.DeepEqual(volume.Spec.NodeAffinity, p.affinity()) &&
		volume.Status.Phase == core.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete
}

// folderOf gives the name of the folder behind a volume, if it is the one that we would have made. A volume is data that
// others can write, and what it names gets deleted.
func (p place) folderOf(volume *core.PersistentVolume) (string, error) {
	folder, err := folderName(strings.TrimPrefix(volume.Name, volumePrefix))
	if err != nil {
		return "", err
	}
	if volume.Spec.Local == nil || volume.Spec.Local.Path != filepath.Join(p.root, folder) {
		return "", fmt.Errorf("the source of volume `%s` is not the folder that was made for it", volume.Name)
	}
	return folder, nil
}

// A folder is named by the claim's unique id, which is never given twice, unlike a claim's name.
var uniqueID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

func folderName(id string) (string, error) {
	if !uniqueID.MatchString(id) {
		return "", fmt.Errorf("%q cannot be the name of a folder", id)
	}
	return id, nil
}

// volumeFolders are the folders behind the volumes. The root is held open: no name and no link leads out of it.
type volumeFolders struct{ root *os.Root }

func openFolders(path string) (volumeFolders, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return volumeFolders{}, fmt.Errorf("failed to make the root: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return volumeFolders{}, fmt.Errorf("failed to open the root: %w", err)
	}
	return volumeFolders{root}, nil
}

// make is content with a folder that an earlier try made. Anybody may write to it: the pod's user is not known here.
func (f volumeFolders) make(folder string) error {
	if err := f.root.Mkdir(folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("failed to make the folder `%s`: %w", folder, err)
	}
	info, err := f.root.Lstat(folder)
	if err != nil {
		return fmt.Errorf("failed to look at the folder `%s`: %w", folder, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("failed to make the folder `%s`: a link or a file is in its place", folder)
	}
	// Mkdir asked for the same, but the process may have a umask.
	if err := f.root.Chmod(folder, 0o777); err != nil {
		return fmt.Errorf("failed to open the folder `%s` to all: %w", folder, err)
	}
	return nil
}

// remove is content if the folder is gone already. It deletes links and does not follow them.
func (f volumeFolders) remove(folder string) error {
	if err := f.root.RemoveAll(folder); err != nil {
		return fmt.Errorf("failed to remove the folder `%s`: %w", folder, err)
	}
	return nil
}

// sweep removes empty folders that nobody owns: what is left when we were killed after making a folder, and its claim
// was deleted before we were back. One that holds data is kept, as it may be that of a retained volume.
func (f volumeFolders) sweep(owned func(folder string) bool) error {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("failed to read the root: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if _, err := folderName(name); err != nil || !entry.IsDir() || owned(name) {
			continue
		}
		_ = f.root.Remove(name) // fails if it is not empty, and then it stays
	}
	return nil
}
