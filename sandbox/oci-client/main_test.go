package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	artifact  = "application/vnd.example.artifact.v1"
	resources = "application/vnd.example.resources.v1.tar+gzip"
	metadata  = "application/vnd.example.metadata.v1+json"
)

// shelf is a registry that keeps what it is given under its digest, and manifests under tags too; a new one for every test.
type shelf struct {
	mutex sync.Mutex
	// kept is by the last part of a path: a digest or a tag.
	kept  map[string][]byte
	types map[string]string
}

func startRegistry(t *testing.T) (*shelf, string) {
	t.Helper()
	s := &shelf{kept: map[string][]byte{}, types: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, strings.TrimPrefix(server.URL, "http://")
}

func (s *shelf) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := filepath.Base(request.URL.Path)
	switch request.Method {
	case http.MethodPost:
		answer.Header().Set("Location", "/v2/a/b/blobs/uploads/one")
		answer.WriteHeader(http.StatusAccepted)
	case http.MethodPut:
		body, _ := io.ReadAll(request.Body)
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body))
		for _, key := range []string{name, digest} {
			s.kept[key], s.types[key] = body, request.Header.Get("Content-Type")
		}
		answer.Header().Set("Docker-Content-Digest", digest)
		answer.WriteHeader(http.StatusCreated)
	default:
		body, found := s.kept[name]
		if !found {
			answer.WriteHeader(http.StatusNotFound)
			return
		}
		answer.Header().Set("Content-Type", s.types[name])
		answer.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(body)))
		_, _ = answer.Write(body)
	}
}

// entry is a file of an archive, or something else that an archive can hold.
type entry struct {
	name    string
	kind    byte
	content string
}

func archived(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var archive bytes.Buffer
	outer := gzip.NewWriter(&archive)
	inner := tar.NewWriter(outer)
	for _, entry := range entries {
		header := &tar.Header{Name: entry.name, Typeflag: entry.kind, Mode: 0o644, Size: int64(len(entry.content))}
		if entry.kind == tar.TypeSymlink {
			header.Linkname = "elsewhere"
		}
		if err := inner.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := inner.Write([]byte(entry.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(inner.Close(), outer.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func said(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var stdout bytes.Buffer
	err := run(t.Context(), arguments, &stdout)
	return strings.TrimSpace(stdout.String()), err
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestWhatIsPushedIsPulledAndUnpacked(t *testing.T) {
	registry, host := startRegistry(t)
	folder := t.TempDir()
	files := map[string][]byte{
		"metadata.json": []byte(`{"a":1}`),
		"default.tar.gz": archived(t, entry{"./", tar.TypeDir, ""}, entry{"./a.yaml", tar.TypeReg, "a: 1\n"},
			entry{"deep/down/b.yaml", tar.TypeReg, "b: 2\n"}),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	layers := []string{
		filepath.Join(folder, "metadata.json") + "=" + metadata,
		filepath.Join(folder, "default.tar.gz") + "=" + resources + ",example.com/for=default,example.com/more=a=b",
	}
	for tag, flags := range map[string][]string{"new": {}, "old": {"--oci-1.0"}} {
		reference := host + "/a/b:" + tag
		arguments := append([]string{"push", "--plain-http", "--artifact-type", artifact}, flags...)
		pushed, err := said(t, append(append(arguments, reference), layers...)...)
		if err != nil {
			t.Fatal(err)
		}
		var manifest ocispec.Manifest
		if err := json.Unmarshal(registry.kept[tag], &manifest); err != nil {
			t.Fatal(err)
		}
		if tag == "new" && manifest.ArtifactType != artifact || tag == "old" && (manifest.ArtifactType != "" || manifest.Config.MediaType != artifact) {
			t.Errorf("%s: the manifest says something else: %s", tag, registry.kept[tag])
		}
		annotations := manifest.Layers[1].Annotations
		if annotations["example.com/for"] != "default" || annotations["example.com/more"] != "a=b" {
			t.Errorf("%s: annotations are %v", tag, annotations)
		}
		for _, reference := range []string{reference, host + "/a/b@" + pushed} {
			into := filepath.Join(t.TempDir(), "into")
			pulled, err := said(t, "pull", "--plain-http", reference, into)
			if err != nil || pulled != pushed {
				t.Fatalf("%s: pushed %s, pulled %s: %v", tag, pushed, pulled, err)
			}
			got := read(t, into, "0") + read(t, into, "1", "a.yaml") + read(t, into, "1", "deep/down/b.yaml")
			if got != "{\"a\":1}a: 1\nb: 2\n" {
				t.Errorf("%s: got %q", tag, got)
			}
		}
	}
}

func TestAnArchiveIsUnpackedIntoItsFolderOnly(t *testing.T) {
	for name, entries := range map[string][]entry{
		"above":    {{"../outside", tar.TypeReg, "x"}},
		"absolute": {{"/outside", tar.TypeReg, "x"}},
		"link":     {{"link", tar.TypeSymlink, ""}},
		"twice":    {{"a", tar.TypeReg, "x"}, {"a", tar.TypeReg, "y"}},
	} {
		folder := t.TempDir()
		if err := unpack(filepath.Join(folder, "into"), archived(t, entries...)); err == nil {
			t.Errorf("%s: it was unpacked", name)
		}
		if _, err := os.Lstat(filepath.Join(folder, "outside")); !os.IsNotExist(err) {
			t.Errorf("%s: something is outside: %v", name, err)
		}
	}
}

func TestContentThatIsNotItsDigestIsNotPulled(t *testing.T) {
	registry, host := startRegistry(t)
	file := filepath.Join(t.TempDir(), "metadata.json")
	if err := os.WriteFile(file, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := said(t, "push", "--plain-http", "--artifact-type", artifact, host+"/a/b:one", file+"="+metadata); err != nil {
		t.Fatal(err)
	}
	registry.kept[fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(`{"a":1}`)))] = []byte(`{"a":2}`)
	into := t.TempDir()
	if _, err := said(t, "pull", "--plain-http", host+"/a/b:one", into); err == nil {
		t.Error("it was pulled")
	}
	if left, _ := os.ReadDir(into); len(left) != 0 {
		t.Errorf("%v was kept", left)
	}
}

func TestWrongUseIsSaidBeforeTheRegistryIsAsked(t *testing.T) {
	for _, arguments := range [][]string{
		{},
		{"copy"},
		{"pull", "localhost:1/a/b:one"},
		{"pull", "localhost:1/a/b", "into"},
		{"pull", "localhost:1/a/b:one", "into", "more"},
		{"push", "localhost:1/a/b:one", "file=type"},
		{"push", "--artifact-type", artifact, "localhost:1/a/b:one"},
		{"push", "--artifact-type", artifact, "localhost:1/a/b:one", "file"},
	} {
		_, err := said(t, arguments...)
		var wrongUse usageError
		if !errors.As(err, &wrongUse) {
			t.Errorf("%v: %v", arguments, err)
		}
	}
}
