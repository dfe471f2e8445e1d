package main

// The sandbox's OCI registry: the distribution project with its file system driver and nothing that reaches out.

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/sirupsen/logrus"
)

func runRegistry(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:5000", "address and port to serve plain HTTP on")
	root := flags.String("root", "", "folder that holds the blobs and manifests; made if absent")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if err := require(flags, "root"); err != nil {
		return err
	}

	folder, err := filepath.Abs(*root)
	if err != nil {
		return fmt.Errorf("failed to find the folder `%s`: %w", *root, err)
	}
	// The driver makes its folder on the first push; a wrong one is better known at the start.
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("failed to make the root: %w", err)
	}

	// The application and not the ready-made server of the same project: that one sets up OpenTelemetry exporters.
	// It gets no context that ends with the signal, or requests under way would fail while they are drained.
	logrus.SetLevel(logrus.ErrorLevel)
	logrus.SetFormatter(registryLog{})
	app := handlers.NewApp(context.Background(), registryConfiguration(folder))
	if err := serve(ctx, *listen, app); err != nil {
		return err
	}
	if err := app.Shutdown(); err != nil {
		return fmt.Errorf("failed to close the registry: %w", err)
	}
	return nil
}

func registryConfiguration(folder string) *configuration.Configuration {
	return &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": folder},
			"delete":     {"enabled": true},
			// Left on, it deletes uploads by age in the background, at a random minute.
			"maintenance": {"uploadpurging": map[any]any{"enabled": false}},
		},
		HTTP: configuration.HTTP{
			// It signs the state of uploads under way. One per start will do: a client begins a cut upload anew.
			Secret: rand.Text(),
		},
		// What the project's own parser of configuration files fills in; zero would list nothing.
		Catalog: configuration.Catalog{MaxEntries: 1000},
		Tags:    configuration.Tags{MaxTags: 1000},
	}
}

// registryLog writes an error in one short line and leaves out those of clients: to ask whether an image is there, and
// to be told that it is not, is how every push begins.
type registryLog struct{}

func (registryLog) Format(entry *logrus.Entry) ([]byte, error) {
	if status, ok := entry.Data["http.response.status"].(int); ok && status < http.StatusInternalServerError {
		return nil, nil
	}
	return fmt.Appendf(nil, "%s %s: %v %v: %v\n", entry.Time.Format(time.RFC3339), entry.Message,
		entry.Data["http.request.method"], entry.Data["http.request.uri"], entry.Data["err.detail"]), nil
}
