package main

// Pushes an artifact made of files that are there already.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
)

// push stores files as the layers of an artifact, and says its digest.
func push(ctx context.Context, arguments []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	plainHTTP := flags.Bool("plain-http", false, "the registry has no TLS")
	artifactType := flags.String("artifact-type", "", "what the artifact is")
	old := flags.Bool("oci-1.0", false, "write it as OCI 1.0 has it, where the configuration says what an artifact is")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return usageError{"want REFERENCE FILE=TYPE[,ANNOTATION=VALUE]… after the flags"}
	}
	if *artifactType == "" {
		return usageError{"flag `--artifact-type` is missing"}
	}
	reference := flags.Arg(0)
	repository, err := open(reference, *plainHTTP)
	if err != nil {
		return err
	}
	// It reads files where they are; what it is given besides stays in memory.
	store, err := file.New(".")
	if err != nil {
		return fmt.Errorf("failed to open the folder: %w", err)
	}
	defer store.Close()
	var layers []ocispec.Descriptor
	for _, argument := range flags.Args()[1:] {
		layer, err := add(ctx, store, argument)
		if err != nil {
			return err
		}
		layers = append(layers, layer)
	}
	version := oras.PackManifestVersion1_1
	if *old {
		version = oras.PackManifestVersion1_0
	}
	manifest, err := oras.PackManifest(ctx, store, version, *artifactType, oras.PackManifestOptions{Layers: layers})
	if err != nil {
		return fmt.Errorf("failed to write the manifest: %w", err)
	}
	tag := repository.Reference.Reference
	if err := store.Tag(ctx, manifest, tag); err != nil {
		return fmt.Errorf("failed to tag the manifest: %w", err)
	}
	if _, err := oras.Copy(ctx, store, tag, repository, tag, oras.DefaultCopyOptions); err != nil {
		return fmt.Errorf("failed to push `%s`: %w", reference, err)
	}
	_, err = fmt.Fprintln(stdout, manifest.Digest)
	return err
}

// add makes a layer of a file that is said as `FILE=TYPE[,ANNOTATION=VALUE]…`.
func add(ctx context.Context, store *file.Store, argument string) (ocispec.Descriptor, error) {
	name, rest, found := strings.Cut(argument, "=")
	if !found {
		return ocispec.Descriptor{}, usageError{fmt.Sprintf("`%s` has no type, want FILE=TYPE", argument)}
	}
	parts := strings.Split(rest, ",")
	layer, err := store.Add(ctx, filepath.Base(name), parts[0], name)
	if err != nil {
		return layer, fmt.Errorf("failed to read `%s`: %w", name, err)
	}
	for _, annotation := range parts[1:] {
		key, value, found := strings.Cut(annotation, "=")
		if !found {
			return layer, usageError{fmt.Sprintf("`%s` is no annotation, want NAME=VALUE", annotation)}
		}
		layer.Annotations[key] = value
	}
	return layer, nil
}
