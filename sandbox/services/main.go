// One binary for the services that the sandbox needs beside Kubernetes and that cannot be had as images here: a
// registry, a Git server, a volume provisioner and the two companions of NATS that Argo Events starts. The name it is
// called by decides which one it is, as with the Kubernetes binary beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A program runs until its context ends or it cannot go on. Its arguments come without its name.
type program func(ctx context.Context, arguments []string) error

var programs = map[string]program{
	"registry":             runRegistry,
	"git-server":           runGitServer,
	"provisioner":          runProvisioner,
	"nats-config-reloader": runReloader,
	"nats-exporter":        runExporter,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "called as `%s`: link it as one of %s\n", name, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	// The second signal kills: after the first one the default action is back.
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, restore)

	err := run(ctx, os.Args[1:])
	var wrongUse usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &wrongUse):
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
