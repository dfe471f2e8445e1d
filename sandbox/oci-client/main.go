// A client of registries that knows nothing of Forge, made of the Go OCI client library: what others make of a release of
// ours, what Forge makes of theirs, and what it costs to pull and unpack one. Tests and the benchmark call it. It is a module
// of its own, so that nothing but the library is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"oras.land/oras-go/v2/registry/remote"
)

// A command gets the arguments after its name, and writes what it is asked for.
type command func(ctx context.Context, arguments []string, stdout io.Writer) error

var commands = map[string]command{
	"pull": pull,
	"push": push,
}

// usageError is a command line that cannot be right whatever the registry holds; it ends with exit code 2.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout)
	restore()
	var wrongUse usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &wrongUse):
		fmt.Fprintf(os.Stderr, "oci-client: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "oci-client: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, stdout io.Writer) error {
	if len(arguments) > 0 {
		if command, known := commands[arguments[0]]; known {
			return command(ctx, arguments[1:], stdout)
		}
	}
	return usageError{fmt.Sprintf("want one of %s", strings.Join(slices.Sorted(maps.Keys(commands)), ", "))}
}

// parse refuses what it does not know. What may follow the flags is for the command to say.
func parse(flags *flag.FlagSet, arguments []string) error {
	flags.SetOutput(os.Stderr)
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err.Error()}
	}
	return nil
}

// open finds the repository of a reference, which must say what of it is meant.
func open(reference string, plainHTTP bool) (*remote.Repository, error) {
	repository, err := remote.NewRepository(reference)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	if repository.Reference.Reference == "" {
		return nil, usageError{fmt.Sprintf("`%s` has neither tag nor digest", reference)}
	}
	repository.PlainHTTP = plainHTTP
	return repository, nil
}
