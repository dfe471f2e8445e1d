package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

const manifestType = "application/vnd.oci.image.manifest.v1+json"

func digestOf(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

func startRegistry(t *testing.T, root string) *process {
	return start(t, "registry", "--listen", "127.0.0.1:0", "--root", root)
}

// pushBlob does what clients do: begin an upload, send a part, then the rest with the digest.
func pushBlob(t *testing.T, registry *process, repository, content string) {
	t.Helper()
	status, headers, _ := call(t, http.MethodPost, registry.url+"/v2/"+repository+"/blobs/uploads/", "")
	expect(t, "begin of the upload", status, http.StatusAccepted)
	half := len(content) / 2
	status, headers, _ = call(t, http.MethodPatch, headers.Get("Location"), content[:half], "Content-Type", "application/octet-stream")
	expect(t, "part of the upload", status, http.StatusAccepted)
	status, _, body := call(t, http.MethodPut, headers.Get("Location")+"&digest="+digestOf(content), content[half:], "Content-Type", "application/octet-stream")
	if status != http.StatusCreated {
		t.Fatalf("end of the upload: got %d: %s", status, body)
	}
}

func manifestOf(config, layer string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digestOf(config), len(config), digestOf(layer), len(layer))
}

func TestRegistryKeepsWhatWasPushedOverStopAndKill(t *testing.T) {
	root := t.TempDir()
	config, layer := "{}", strings.Repeat("layer ", 100_000)
	manifest := manifestOf(config, layer)

	registry := startRegistry(t, root)
	status, _, _ := call(t, http.MethodGet, registry.url+"/v2/", "")
	expect(t, "GET /v2/", status, http.StatusOK)
	pushBlob(t, registry, "team/app", config)
	pushBlob(t, registry, "team/app", layer)
	status, _, body := call(t, http.MethodPut, registry.url+"/v2/team/app/manifests/v1", manifest, "Content-Type", manifestType)
	if status != http.StatusCreated {
		t.Fatalf("push of the manifest: got %d: %s", status, body)
	}

	pull := func(registry *process) {
		t.Helper()
		status, headers, body := call(t, http.MethodGet, registry.url+"/v2/team/app/manifests/v1", "", "Accept", manifestType)
		expect(t, "pull of the manifest", status, http.StatusOK)
		expect(t, "manifest", body, manifest)
		expect(t, "digest", headers.Get("Docker-Content-Digest"), digestOf(manifest))
		status, _, body = call(t, http.MethodGet, registry.url+"/v2/team/app/blobs/"+digestOf(layer), "")
		expect(t, "pull of the layer", status, http.StatusOK)
		expect(t, "layer is whole", body == layer, true)
		_, _, body = call(t, http.MethodGet, registry.url+"/v2/team/app/tags/list", "")
		expect(t, "tags", strings.TrimSpace(body), `{"name":"team/app","tags":["v1"]}`)
		_, _, body = call(t, http.MethodGet, registry.url+"/v2/_catalog", "")
		expect(t, "catalog", strings.TrimSpace(body), `{"repositories":["team/app"]}`)
	}
	pull(registry)
	expect(t, "exit code after SIGTERM", registry.terminate(t), 0)

	registry = startRegistry(t, root)
	pull(registry)
	registry.kill(t)

	registry = startRegistry(t, root)
	pull(registry)
}

func TestRegistryDeletesManifestsAndBlobs(t *testing.T) {
	registry := startRegistry(t, t.TempDir())
	manifest := manifestOf("{}", "layer")
	pushBlob(t, registry, "app", "{}")
	pushBlob(t, registry, "app", "layer")
	status, _, _ := call(t, http.MethodPut, registry.url+"/v2/app/manifests/v1", manifest, "Content-Type", manifestType)
	expect(t, "push", status, http.StatusCreated)

	for _, path := range []string{"/v2/app/manifests/" + digestOf(manifest), "/v2/app/blobs/" + digestOf("layer")} {
		status, _, body := call(t, http.MethodDelete, registry.url+path, "")
		if status != http.StatusAccepted {
			t.Fatalf("DELETE %s: got %d: %s", path, status, body)
		}
		status, _, _ = call(t, http.MethodGet, registry.url+path, "", "Accept", manifestType)
		expect(t, "GET "+path, status, http.StatusNotFound)
	}
}

func TestRegistryRefusesContentThatIsNotItsDigest(t *testing.T) {
	registry := startRegistry(t, t.TempDir())
	_, headers, _ := call(t, http.MethodPost, registry.url+"/v2/app/blobs/uploads/", "")
	status, _, _ := call(t, http.MethodPut, headers.Get("Location")+"&digest="+digestOf("one"), "another", "Content-Type", "application/octet-stream")
	expect(t, "status", status, http.StatusBadRequest)
}

func TestRegistryLogsItsOwnFailuresOnly(t *testing.T) {
	root := t.TempDir()
	registry := startRegistry(t, root)
	status, _, _ := call(t, http.MethodGet, registry.url+"/v2/app/manifests/absent", "", "Accept", manifestType)
	expect(t, "manifest that is not there", status, http.StatusNotFound)
	// A file where a folder must be: nothing can be stored.
	write(t, filepath.Join(root, "docker"), "")
	status, _, _ = call(t, http.MethodPost, registry.url+"/v2/app/blobs/uploads/", "")
	expect(t, "upload", status, http.StatusInternalServerError)
	registry.terminate(t)
	expect(t, "complaints", strings.Count(registry.logged(), "response completed with error"), 1)
	if !strings.Contains(registry.logged(), "POST /v2/app/blobs/uploads/: ") {
		t.Errorf("the log does not say what failed:\n%s", registry.logged())
	}
}

func TestNoCloudDriverIsLinked(t *testing.T) {
	build, ok := debug.ReadBuildInfo()
	if !ok || len(build.Deps) == 0 {
		t.Fatal("the binary does not know its modules")
	}
	for _, module := range build.Deps {
		for _, cloud := range []string{"azure", "aws", "cloud.google.com", "google.golang.org/api"} {
			if strings.Contains(strings.ToLower(module.Path), cloud) {
				t.Errorf("`%s` is linked", module.Path)
			}
		}
	}
}
