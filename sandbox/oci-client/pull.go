package main

// Pulls an artifact and unpacks its layers.

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
)

// packed is how the media type of a layer ends that is an archive.
const packed = "tar+gzip"

// pull puts every layer into a folder under its number: an archive as a folder, anything else as a file. It says the digest.
func pull(ctx context.Context, arguments []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("pull", flag.ContinueOnError)
	plainHTTP := flags.Bool("plain-http", false, "the registry has no TLS")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return usageError{"want REFERENCE FOLDER after the flags"}
	}
	reference, folder := flags.Arg(0), flags.Arg(1)
	repository, err := open(reference, *plainHTTP)
	if err != nil {
		return err
	}
	store := memory.New()
	found, err := oras.Copy(ctx, repository, repository.Reference.Reference, store, "", oras.DefaultCopyOptions)
	if err != nil {
		return fmt.Errorf("failed to pull `%s`: %w", reference, err)
	}
	bytes, err := content.FetchAll(ctx, store, found)
	if err != nil {
		return fmt.Errorf("failed to read the manifest: %w", err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(bytes, &manifest); err != nil {
		return fmt.Errorf("failed to read the manifest: %w", err)
	}
	for number, layer := range manifest.Layers {
		bytes, err := content.FetchAll(ctx, store, layer)
		if err == nil {
			err = keep(filepath.Join(folder, strconv.Itoa(number)), layer.MediaType, bytes)
		}
		if err != nil {
			return fmt.Errorf("failed to keep layer %d: %w", number, err)
		}
	}
	_, err = fmt.Fprintln(stdout, found.Digest)
	return err
}

// keep writes a layer to a place.
func keep(place, mediaType string, layer []byte) error {
	if strings.HasSuffix(mediaType, packed) {
		return unpack(place, layer)
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	return os.WriteFile(place, layer, 0o644)
}

// unpack writes the files of an archive below a folder, and nothing elsewhere.
func unpack(folder string, archive []byte) error {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for entries := tar.NewReader(plain); ; {
		entry, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch name := path.Clean(entry.Name); entry.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = write(root, name, entries)
		default:
			err = fmt.Errorf("`%s` is neither a file nor a folder", entry.Name)
		}
		if err != nil {
			return err
		}
	}
}

// write makes a file, and the folders that it is in.
func write(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
