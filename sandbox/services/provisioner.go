package main

// The sandbox's volume provisioner: a folder on this node for each claim that asks for one. Every step can be done
// again: it looks at what the cluster says now, so a provisioner that was killed goes on where it stopped.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
	// Work that is open for so long while none gets done means that we are stuck: several of the longest retries.
	stuckAfter = 2 * time.Minute
	// An API server that does not answer must not hold the only worker for ever.
	stepTime = 30 * time.Second
)

func runProvisioner(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("provisioner", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "file that says how to reach the API server")
	root := flags.String("root", "", "folder on this node that holds the volumes; made if absent")
	name := flags.String("provisioner", "forge.example/local", "name that storage classes call it by")
	node := flags.String("node", "", "name of this node")
	listen := flags.String("listen", "127.0.0.1:8081", "address and port to serve /healthz on")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if err := require(flags, "kubeconfig", "root", "node", "provisioner"); err != nil {
		return err
	}
	// The path is stored in volumes and compared with them later.
	path, err := filepath.Abs(*root)
	if err != nil {
		return fmt.Errorf("failed to find the folder `%s`: %w", *root, err)
	}
	configuration, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig `%s`: %w", *kubeconfig, err)
	}
	// The defaults of 5 a second are for a shared API server; here a whole platform claims at once.
	configuration.QPS, configuration.Burst = 50, 100
	client, err := kubernetes.NewForConfig(configuration)
	if err != nil {
		return fmt.Errorf("failed to make a client from `%s`: %w", *kubeconfig, err)
	}
	provisioner, err := newProvisioner(client, place{provisioner: *name, node: *node, root: path})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- provisioner.run(ctx)
	}()
	return errors.Join(serve(ctx, *listen, http.HandlerFunc(provisioner.health)), stop(cancel, ended))
}

// stop waits for the other half, whichever of the two ended first.
func stop(cancel context.CancelFunc, ended <-chan error) error {
	cancel()
	return <-ended
}

// A task is an object to look at: a claim if it has a namespace, a volume if not.
type task struct{ namespace, name string }

type provisioner struct {
	place
	client  kubernetes.Interface
	folders volumeFolders
	events  record.EventRecorder

	informers informers.SharedInformerFactory
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	classes   storagelisters.StorageClassLister
	synced    []cache.InformerSynced

	queue    workqueue.TypedRateLimitingInterface[task]
	progress progress
	// stopEvents ends the sending of events.
	stopEvents func()
}

func newProvisioner(client kubernetes.Interface, at place) (*provisioner, error) {
	folders, err := openFolders(at.root)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})

	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	volumes := factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	p := &provisioner{
		place:      at,
		client:     client,
		folders:    folders,
		events:     broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: at.provisioner, Host: at.node}),
		informers:  factory,
		claims:     claims.Lister(),
		volumes:    volumes.Lister(),
		classes:    classes.Lister(),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](firstRetry, lastRetry)),
		progress:   progress{open: map[task]bool{}, now: time.Now},
		stopEvents: broadcaster.Shutdown,
	}
	for informer, changed := range map[cache.SharedIndexInformer]func(any){
		claims.Informer():  p.objectChanged,
		volumes.Informer(): p.objectChanged,
		classes.Informer(): p.classChanged,
	} {
		// Nothing is done on deletion: a volume outlives its claim and says so by its phase.
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    changed,
			UpdateFunc: func(_, object any) { changed(object) },
		})
		if err != nil {
			return nil, fmt.Errorf("failed to watch: %w", err)
		}
		p.synced = append(p.synced, registration.HasSynced)
	}
	return p, nil
}

// run works until ctx ends.
func (p *provisioner) run(ctx context.Context) error {
	defer p.stopEvents()
	defer p.informers.Shutdown() // waits for the watches, which end with their context
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, p.queue.ShutDown)
	p.informers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), p.synced...) {
		return nil // stopped before the API server answered
	}
	if err := p.folders.sweep(p.owned); err != nil {
		return err
	}
	log.Printf("provisioning for `%s` on node `%s` in `%s`", p.provisioner, p.node, p.root)
	for p.work(ctx) {
	}
	return nil
}

// owned says whether a claim or a volume stands behind a folder.
func (p *provisioner) owned(folder string) bool {
	if _, err := p.volumes.Get(volumePrefix + folder); !apierrors.IsNotFound(err) {
		return true
	}
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return true
	}
	for _, claim := range claims {
		if string(claim.UID) == folder {
			return true
		}
	}
	return false
}

func (p *provisioner) objectChanged(object any) {
	if named, ok := object.(meta.Object); ok {
		p.enqueue(task{named.GetNamespace(), named.GetName()})
	}
}

// classChanged looks at all claims again: the class may have come after them.
func (p *provisioner) classChanged(object any) {
	class, ok := object.(*storage.StorageClass)
	if !ok || class.Provisioner != p.provisioner {
		return
	}
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		log.Printf("failed to list the claims of class `%s`: %v", class.Name, err)
	}
	for _, claim := range claims {
		p.objectChanged(claim)
	}
}

func (p *provisioner) enqueue(t task) {
	p.progress.opened(t)
	p.queue.Add(t)
}

// work does one task; it is false when there will be no more.
func (p *provisioner) work(ctx context.Context) bool {
	t, stopped := p.queue.Get()
	if stopped {
		return false
	}
	defer p.queue.Done(t)
	step, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if err := p.do(step, t); err != nil {
		log.Print(err)
		p.queue.AddRateLimited(t)
		return true
	}
	p.queue.Forget(t)
	p.progress.closed(t)
	return true
}

func (p *provisioner) do(ctx context.Context, t task) error {
	if t.namespace != "" {
		claim, err := p.claims.PersistentVolumeClaims(t.namespace).Get(t.name)
		if err != nil {
			return ignoreNotFound(err)
		}
		return p.provision(ctx, claim)
	}
	volume, err := p.volumes.Get(t.name)
	if err != nil {
		return ignoreNotFound(err)
	}
	return p.reclaim(ctx, volume)
}

// provision makes the folder first: a volume that can be seen can be used.
func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return ignoreNotFound(err)
	}
	if !p.wants(claim, class) {
		return nil
	}
	volume, err := p.volume(claim, class)
	if err == nil {
		err = p.create(ctx, claim, volume)
	}
	if err != nil {
		err = fmt.Errorf("failed to provision a volume for claim `%s/%s`: %w", claim.Namespace, claim.Name, err)
		p.events.Event(claim, core.EventTypeWarning, "ProvisioningFailed", err.Error())
		if hopeless := (unservable{}); errors.As(err, &hopeless) {
			log.Print(err)
			return nil
		}
		return err
	}
	return nil
}

func (p *provisioner) create(ctx context.Context, claim *core.PersistentVolumeClaim, volume *core.PersistentVolume) error {
	folder, err := p.folderOf(volume)
	if err != nil {
		return err
	}
	if err := p.folders.make(folder); err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Most likely ours, of an earlier try, and only our watch is behind.
		return p.checkOwner(ctx, claim, volume.Name)
	}
	if err != nil {
		return fmt.Errorf("failed to create `%s`: %w", volume.Name, err)
	}
	log.Printf("provisioned `%s` for claim `%s/%s`", volume.Name, claim.Namespace, claim.Name)
	p.events.Eventf(claim, core.EventTypeNormal, "ProvisioningSucceeded", "provisioned volume `%s`", volume.Name)
	return nil
}

func (p *provisioner) checkOwner(ctx context.Context, claim *core.PersistentVolumeClaim, name string) error {
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to look at `%s`: %w", name, err)
	}
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return fmt.Errorf("volume `%s` exists and belongs to another claim", name)
	}
	return nil
}

// reclaim removes the folder first: as long as the volume is there, this is tried again.
func (p *provisioner) reclaim(ctx context.Context, seen *core.PersistentVolume) error {
	if !p.reclaims(seen) {
		return nil
	}
	// What we saw may be old, and data is about to go.
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, seen.Name, meta.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	if !p.reclaims(volume) {
		return nil
	}
	folder, err := p.folderOf(volume)
	if err != nil {
		err = fmt.Errorf("failed to reclaim volume `%s`: %w", volume.Name, err)
		p.events.Event(volume, core.EventTypeWarning, "VolumeFailedDelete", err.Error())
		log.Print(err)
		return nil // as it stands it will not get better
	}
	if err := p.folders.remove(folder); err != nil {
		err = fmt.Errorf("failed to reclaim volume `%s`: %w", volume.Name, err)
		p.events.Event(volume, core.EventTypeWarning, "VolumeFailedDelete", err.Error())
		return err
	}
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, *meta.NewPreconditionDeleteOptions(string(volume.UID)))
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("failed to delete volume `%s`: %w", volume.Name, err)
	}
	log.Printf("reclaimed `%s`", volume.Name)
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// health says no while the API server has not been read, and when work waits and none of it gets done.
func (p *provisioner) health(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		answer(w, http.StatusNotFound, "only /healthz is served here")
		return
	}
	for _, synced := range p.synced {
		if !synced() {
			answer(w, http.StatusServiceUnavailable, "claims, volumes and classes are not read yet")
			return
		}
	}
	if waiting, since := p.progress.stalled(); since > stuckAfter {
		answer(w, http.StatusServiceUnavailable, fmt.Sprintf("%d tasks are open and none was done for %s", waiting, since.Round(time.Second)))
		return
	}
	answer(w, http.StatusOK, "ok")
}

// progress knows which tasks are open, those that wait for a retry among them, and when one was last done.
type progress struct {
	mutex sync.Mutex
	open  map[task]bool
	last  time.Time
	now   func() time.Time
}

func (p *progress) opened(t task) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.open) == 0 {
		p.last = p.now()
	}
	p.open[t] = true
}

func (p *progress) closed(t task) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.open, t)
	p.last = p.now()
}

// stalled gives the number of open tasks and the time since one was done or the first was opened.
func (p *progress) stalled() (int, time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.open) == 0 {
		return 0, 0
	}
	return len(p.open), p.now().Sub(p.last)
}
