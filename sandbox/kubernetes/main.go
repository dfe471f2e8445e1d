// One binary for every Kubernetes program that stays running in the sandbox. The name it is called by decides which one it
// is, as with busybox: one link step and one copy on disk in place of six. kubectl, which is started often, is beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// daemons are the programs that follow the one convention of component-base; etcd has its own.
var daemons = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if daemon, known := daemons[name]; known {
		os.Exit(cli.Run(daemon()))
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	fmt.Fprintf(os.Stderr, "called as %q: link it as etcd, kubelet, kube-apiserver, kube-controller-manager, kube-scheduler or kube-proxy\n", name)
	os.Exit(2)
}
