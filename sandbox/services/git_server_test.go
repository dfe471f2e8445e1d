package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	gitUser     = "forge"
	gitPassword = "s3cret:with:colons"
)

type gitFixture struct {
	*process
	root  string
	users string
}

func startGitServer(t *testing.T, extra ...string) *gitFixture {
	t.Helper()
	f := &gitFixture{root: t.TempDir(), users: filepath.Join(t.TempDir(), "users")}
	write(t, f.users, "other:another\n"+gitUser+":"+gitPassword+"\n")
	f.restart(t, extra...)
	return f
}

func (f *gitFixture) restart(t *testing.T, extra ...string) {
	t.Helper()
	// What the server must not hand on to git.
	hostile := []string{"GIT_DIR=/elsewhere", "GIT_CONFIG_PARAMETERS='http.receivepack'='false'", "SECRET=value", "LD_LIBRARY_PATH=/elsewhere"}
	f.process = startWith(t, hostile, "git-server", append([]string{"--listen", "127.0.0.1:0", "--root", f.root, "--users", f.users}, extra...)...)
}

// remote is the URL of a repository with credentials in it.
func (f *gitFixture) remote(repository, user, password string) string {
	return strings.Replace(f.url, "http://", fmt.Sprintf("http://%s:%s@", user, password), 1) + "/" + repository
}

// manage calls the part of the server that is not Git's protocol.
func (f *gitFixture) manage(t *testing.T, method, path string) (int, string) {
	t.Helper()
	url := strings.Replace(f.url, "http://", fmt.Sprintf("http://%s:%s@", gitUser, gitPassword), 1)
	status, _, body := call(t, method, url+path, "")
	return status, body
}

// git runs the real program, without the configuration of whoever runs the tests.
func git(t *testing.T, folder string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", arguments...)
	command.Dir = folder
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_TRACE_CURL_NO_DATA=1", "GIT_TRACE_CURL=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a",
	}
	command.WaitDelay = patience
	output, err := command.CombinedOutput()
	return string(output), err
}

func mustGit(t *testing.T, folder string, arguments ...string) string {
	t.Helper()
	output, err := git(t, folder, arguments...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// commit makes a work tree with one commit that holds a file of random bytes.
func commit(t *testing.T, size int) string {
	t.Helper()
	folder := t.TempDir()
	mustGit(t, folder, "init", "--quiet", "--initial-branch=main")
	content := make([]byte, size)
	_, _ = rand.Read(content)
	write(t, filepath.Join(folder, "file"), string(content))
	mustGit(t, folder, "add", "file")
	mustGit(t, folder, "commit", "--quiet", "--message=one")
	return folder
}

func TestGitClonesWhatWasPushed(t *testing.T) {
	server := startGitServer(t)
	status, _ := server.manage(t, http.MethodPut, "/_repos/team/app.git")
	expect(t, "create", status, http.StatusCreated)
	remote := server.remote("team/app.git", gitUser, gitPassword)

	// More than git's buffer of a megabyte: it is then sent in chunks, and without a length.
	source := commit(t, 3<<20)
	output := mustGit(t, source, "push", remote, "main")
	if !strings.Contains(output, "Transfer-Encoding: chunked") {
		t.Errorf("the push was not sent in chunks:\n%s", output)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, "", "clone", "--quiet", remote, clone)
	expect(t, "branch", strings.TrimSpace(mustGit(t, clone, "branch", "--show-current")), "main")
	want, _ := os.ReadFile(filepath.Join(source, "file"))
	got, _ := os.ReadFile(filepath.Join(clone, "file"))
	expect(t, "the file is the same", bytes.Equal(got, want), true)

	write(t, filepath.Join(clone, "file"), "two")
	mustGit(t, clone, "commit", "--quiet", "--all", "--message=two")
	mustGit(t, clone, "push", "--quiet", "origin", "main")
	mustGit(t, source, "pull", "--quiet", remote, "main")
	got, _ = os.ReadFile(filepath.Join(source, "file"))
	expect(t, "pulled file", string(got), "two")
}

func TestGitFetchesWithCompressedRequests(t *testing.T) {
	server := startGitServer(t)
	server.manage(t, http.MethodPut, "/_repos/app.git")
	remote := server.remote("app.git", gitUser, gitPassword)
	source := commit(t, 10)
	for i := range 60 {
		mustGit(t, source, "commit", "--quiet", "--allow-empty", "--message=more")
		mustGit(t, source, "branch", fmt.Sprintf("branch-%d", i))
	}
	mustGit(t, source, "push", "--quiet", "--all", remote)
	for _, protocol := range []string{"0", "2"} {
		clone := filepath.Join(t.TempDir(), "clone")
		output := mustGit(t, "", "-c", "protocol.version="+protocol, "clone", "--quiet", remote, clone)
		if !strings.Contains(strings.ToLower(output), "content-encoding: gzip") {
			t.Errorf("the request of protocol %s was not compressed", protocol)
		}
		mustGit(t, clone, "rev-parse", "origin/branch-59")
	}
}

func TestGitFetchesOneCommitByItsDigest(t *testing.T) {
	server := startGitServer(t)
	server.manage(t, http.MethodPut, "/_repos/app.git")
	remote := server.remote("app.git", gitUser, gitPassword)
	source := commit(t, 10)
	first := mustGit(t, source, "rev-parse", "HEAD")
	mustGit(t, source, "commit", "--quiet", "--allow-empty", "--message=more")
	mustGit(t, source, "push", "--quiet", remote, "main")
	for _, protocol := range []string{"0", "2"} {
		clone := t.TempDir()
		mustGit(t, clone, "init", "--quiet")
		mustGit(t, clone, "-c", "protocol.version="+protocol, "fetch", "--quiet", "--depth=1", remote, strings.TrimSpace(first))
		expect(t, "fetched commit", mustGit(t, clone, "rev-parse", "FETCH_HEAD"), first)
	}
}

func TestGitRefusesWhoIsNotKnown(t *testing.T) {
	server := startGitServer(t)
	server.manage(t, http.MethodPut, "/_repos/app.git")
	source := commit(t, 10)
	for _, remote := range []string{
		server.url + "/app.git",
		server.remote("app.git", gitUser, "wrong"),
		server.remote("app.git", gitUser, ""),
		server.remote("app.git", "nobody", gitPassword),
		server.remote("app.git", gitUser, "another"),
	} {
		for _, arguments := range [][]string{{"push", remote, "main"}, {"ls-remote", remote}} {
			if output, err := git(t, source, arguments...); err == nil || !strings.Contains(output, "HTTP/1.1 401") {
				t.Errorf("git %v was not refused: %v\n%s", arguments, err, output)
			}
		}
	}
	// Not by the way around the first request either.
	status, _, _ := call(t, http.MethodPost, server.url+"/app.git/git-receive-pack", "0000")
	expect(t, "push without the first request", status, http.StatusUnauthorized)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		status, headers, _ := call(t, method, server.url+"/_repos/app.git", "")
		expect(t, method, status, http.StatusUnauthorized)
		if !strings.HasPrefix(headers.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s does not say how to authenticate", method)
		}
	}
	status, _, _ = call(t, http.MethodGet, server.url+"/_repos", "")
	expect(t, "list", status, http.StatusUnauthorized)
}

func TestAnonymousReadIsNotAnonymousPush(t *testing.T) {
	server := startGitServer(t, "--anonymous-read")
	server.manage(t, http.MethodPut, "/_repos/app.git")
	source := commit(t, 10)
	mustGit(t, source, "push", "--quiet", server.remote("app.git", gitUser, gitPassword), "main")
	anonymous := server.url + "/app.git"
	mustGit(t, "", "clone", "--quiet", anonymous, filepath.Join(t.TempDir(), "clone"))
	mustGit(t, source, "commit", "--quiet", "--allow-empty", "--message=two")
	if output, err := git(t, source, "push", anonymous, "main"); err == nil {
		t.Errorf("an anonymous push passed:\n%s", output)
	}
	status, _, _ := call(t, http.MethodGet, anonymous+"/info/refs?service=git-upload-pack&service=git-receive-pack", "")
	expect(t, "two services at once are the first", status, http.StatusOK)
	status, _, _ = call(t, http.MethodPost, anonymous+"/git-receive-pack", "0000")
	expect(t, "push without the first request", status, http.StatusUnauthorized)
	_, _, body := call(t, http.MethodGet, server.url+"/_repos", "")
	expect(t, "list", body, "app.git\n")
}

func TestUsersAreReadAgain(t *testing.T) {
	server := startGitServer(t)
	list := func(user, password string) int {
		status, _, _ := call(t, http.MethodGet, server.remote("_repos", user, password), "")
		return status
	}
	expect(t, "before", list("late", "comer"), http.StatusUnauthorized)
	write(t, server.users, "late:comer\n")
	expect(t, "new user", list("late", "comer"), http.StatusOK)
	expect(t, "old user", list(gitUser, gitPassword), http.StatusUnauthorized)
	write(t, server.users, "late:comer\nnonsense\n")
	expect(t, "file that is not understood", list("late", "comer"), http.StatusInternalServerError)
	if strings.Contains(server.logged(), "nonsense") {
		t.Error("a line of the users file is in the log")
	}
	if err := os.Remove(server.users); err != nil {
		t.Fatal(err)
	}
	expect(t, "no file", list("late", "comer"), http.StatusInternalServerError)
}

func TestRepositoriesAreMadeListedAndRemoved(t *testing.T) {
	server := startGitServer(t)
	for _, step := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, "/healthz", http.StatusOK, "ok\n"},
		{http.MethodGet, "/_repos", http.StatusOK, ""},
		{http.MethodPut, "/_repos/team/deep/app.git", http.StatusCreated, "created `team/deep/app.git`\n"},
		{http.MethodPut, "/_repos/team/deep/app.git", http.StatusOK, "`team/deep/app.git` exists\n"},
		{http.MethodPut, "/_repos/app.git", http.StatusCreated, "created `app.git`\n"},
		{http.MethodPut, "/_repos/team/two.git", http.StatusCreated, "created `team/two.git`\n"},
		{http.MethodGet, "/_repos", http.StatusOK, "app.git\nteam/deep/app.git\nteam/two.git\n"},
		{http.MethodDelete, "/_repos/team/deep/app.git", http.StatusNoContent, ""},
		{http.MethodDelete, "/_repos/team/deep/app.git", http.StatusNotFound, "no repository `team/deep/app.git`\n"},
		{http.MethodGet, "/_repos", http.StatusOK, "app.git\nteam/two.git\n"},
		{http.MethodPut, "/_repos/team/deep/app.git", http.StatusCreated, "created `team/deep/app.git`\n"},
		{http.MethodPost, "/_repos/app.git", http.StatusMethodNotAllowed, "method \"POST\" is not allowed here\n"},
	} {
		status, body := server.manage(t, step.method, step.path)
		expect(t, step.method+" "+step.path, status, step.status)
		expect(t, step.method+" "+step.path, body, step.body)
	}
	if output, err := git(t, "", "ls-remote", server.remote("gone.git", gitUser, gitPassword)); err == nil {
		t.Errorf("a repository that is not there was served:\n%s", output)
	}
}

func TestPushesAndCreationsAtOnce(t *testing.T) {
	server := startGitServer(t)
	var all sync.WaitGroup
	for _, repository := range []string{"one.git", "two.git"} {
		server.manage(t, http.MethodPut, "/_repos/"+repository)
		remote := server.remote(repository, gitUser, gitPassword)
		source := commit(t, 2<<20)
		all.Go(func() {
			for i := range 5 {
				if output, err := git(t, source, "push", remote, fmt.Sprintf("main:branch-%d", i)); err != nil {
					t.Errorf("push to %s: %v\n%s", repository, err, output)
				}
				if output, err := git(t, source, "commit", "--quiet", "--allow-empty", "--message=more"); err != nil {
					t.Errorf("commit: %v\n%s", err, output)
				}
			}
		})
	}
	created := make(chan int, 10)
	for range cap(created) {
		all.Go(func() {
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, server.url+"/_repos/same/app.git", nil)
			request.SetBasicAuth(gitUser, gitPassword)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			created <- response.StatusCode
		})
	}
	all.Wait()
	close(created)
	statuses := map[int]int{}
	for status := range created {
		statuses[status]++
	}
	expect(t, "one creation", statuses[http.StatusCreated], 1)
	expect(t, "all others found it", statuses[http.StatusOK], cap(created)-1)
	for _, repository := range []string{"one.git", "two.git"} {
		refs := mustGit(t, filepath.Join(server.root, repository), "for-each-ref", "--format=%(refname)")
		expect(t, "branches in "+repository, strings.Count(refs, "refs/heads/branch-"), 5)
	}
}

func TestPathsThatLeadAwayAreRefused(t *testing.T) {
	server := startGitServer(t, "--anonymous-read")
	outside := t.TempDir()
	mustGit(t, outside, "init", "--quiet", "--bare", "secret.git")
	if err := os.Symlink(filepath.Join(outside, "secret.git"), filepath.Join(server.root, "link.git")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(server.root, "folder")); err != nil {
		t.Fatal(err)
	}
	server.manage(t, http.MethodPut, "/_repos/app.git")
	write(t, filepath.Join(server.root, "app.git", "private"), "private")
	relative := filepath.Base(outside)

	const refs = "/info/refs?service=git-upload-pack"
	for _, path := range []string{
		"/../" + relative + "/secret.git" + refs,
		"/app.git/../../" + relative + "/secret.git" + refs,
		"/%2e%2e/" + relative + "/secret.git" + refs,
		"/..%2f" + relative + "%2fsecret.git" + refs,
		"//" + strings.TrimPrefix(outside, "/") + "/secret.git" + refs,
		outside + "/secret.git" + refs,
		"/link.git" + refs,
		"/folder/secret.git" + refs,
		"/app.git%00" + refs,
		"/app%0a.git" + refs,
		"/app%1b.git" + refs,
		"/.git" + refs,
		"/.unfinished-1/app.git" + refs,
		"/app.git/app.git" + refs,
		"/" + strings.Repeat("a", 500) + ".git" + refs,
		// The dumb protocol would serve any file of a repository.
		"/app.git/private", "/app.git/HEAD", "/app.git/config", "/app.git/objects/info/packs", "/app.git/info/refs",
		"/app.git/info/refs?service=git-upload-archive",
	} {
		status, body := raw(t, server.process, "GET", path)
		if status != http.StatusBadRequest && status != http.StatusNotFound {
			t.Errorf("GET %s: got %d: %s", path, status, body)
		}
		if strings.Count(body, "\n") > 1 {
			t.Errorf("GET %s: the reason is more than a line: %q", path, body)
		}
	}
	for _, path := range []string{"/_repos/../x.git", "/_repos/%2e%2e/x.git", "/_repos//x.git", "/_repos/x", "/_repos/a.git/x.git", "/_repos/link.git", "/_repos/folder/x.git", "/_repos/x%0a.git", "/_repos/.x.git", "/_repos/_repos/x.git"} {
		for _, method := range []string{"PUT", "DELETE"} {
			if status, body := raw(t, server.process, method, path); status != http.StatusBadRequest && status != http.StatusNotFound {
				t.Errorf("%s %s: got %d: %s", method, path, status, body)
			}
		}
	}
	entries, _ := os.ReadDir(outside)
	expect(t, "folders outside", len(entries), 1)
	_, _, body := call(t, http.MethodGet, server.url+"/_repos", "")
	expect(t, "list", body, "app.git\n")
}

// raw sends a path as it stands; a client of the standard library would tidy it.
func raw(t *testing.T, server *process, method, path string) (int, string) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(server.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	request, _ := http.NewRequest(method, "http://x", nil)
	request.SetBasicAuth(gitUser, gitPassword)
	fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nAuthorization: %s\r\n\r\n", method, path, request.Header.Get("Authorization"))
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func TestKilledServerLeavesNoHalfRepository(t *testing.T) {
	server := startGitServer(t)
	for round := range 3 {
		stop := make(chan struct{})
		var all sync.WaitGroup
		url := server.url
		for worker := range 4 {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					request, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/_repos/r%d/w%d/%d.git", url, round, worker, i), nil)
					request.SetBasicAuth(gitUser, gitPassword)
					response, err := http.DefaultClient.Do(request)
					if err != nil {
						return // killed
					}
					response.Body.Close()
				}
			})
		}
		eventually(t, "some repositories are made", func() bool {
			found, _ := filepath.Glob(filepath.Join(server.root, fmt.Sprintf("r%d", round), "*", "*.git"))
			return len(found) > 3
		})
		server.kill(t)
		close(stop)
		all.Wait()
		server.restart(t)
	}
	_, body := server.manage(t, http.MethodGet, "/_repos")
	names := strings.Fields(body)
	if len(names) < 9 {
		t.Fatalf("only %d repositories were made", len(names))
	}
	for _, name := range names {
		folder := filepath.Join(server.root, name)
		expect(t, name, mustGit(t, folder, "rev-parse", "--is-bare-repository"), "true\n")
		expect(t, name, mustGit(t, folder, "symbolic-ref", "HEAD"), "refs/heads/main\n")
	}
	left, _ := filepath.Glob(filepath.Join(server.root, unfinished+"*"))
	expect(t, "unfinished folders", len(left), 0)
}

func TestGitSeesNothingOfOurEnvironment(t *testing.T) {
	server := startGitServer(t)
	server.manage(t, http.MethodPut, "/_repos/app.git")
	hooks := filepath.Join(server.root, "app.git", "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	// A hook is run by git, and so it sees what git saw and a little more.
	write(t, filepath.Join(hooks, "post-receive"), "#!/bin/sh\nenv > ../seen\n")
	if err := os.Chmod(filepath.Join(hooks, "post-receive"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustGit(t, commit(t, 10), "push", "--quiet", server.remote("app.git", gitUser, gitPassword), "main")
	content, err := os.ReadFile(filepath.Join(server.root, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	seen := "\n" + string(content)
	for _, wanted := range []string{"\nHOME=/nonexistent\n", "\nREMOTE_USER=" + gitUser + "\n"} {
		if !strings.Contains(seen, wanted) {
			t.Errorf("%q is missing in:%s", wanted, seen)
		}
	}
	for _, unwanted := range []string{"SECRET=", "LD_LIBRARY_PATH=", "AUTHORIZATION", "/elsewhere", "receivepack'='false"} {
		if strings.Contains(seen, unwanted) {
			t.Errorf("%q is in:%s", unwanted, seen)
		}
	}
}

func TestRunningPushIsFinishedBeforeTheServerStops(t *testing.T) {
	server := startGitServer(t)
	server.manage(t, http.MethodPut, "/_repos/app.git")
	hooks := filepath.Join(server.root, "app.git", "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	// The hook holds the push until the test has sent the signal.
	write(t, filepath.Join(hooks, "pre-receive"), "#!/bin/sh\n: > started\ni=0\nwhile [ ! -e go ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done\n")
	if err := os.Chmod(filepath.Join(hooks, "pre-receive"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := commit(t, 10)
	pushed := make(chan error, 1)
	go func() {
		_, err := git(t, source, "push", server.remote("app.git", gitUser, gitPassword), "main")
		pushed <- err
	}()
	repository := filepath.Join(server.root, "app.git")
	eventually(t, "the push is under way", func() bool {
		_, err := os.Stat(filepath.Join(repository, "started"))
		return err == nil
	})
	stopped := make(chan int, 1)
	go func() { stopped <- server.terminate(t) }()
	eventually(t, "the server stops", func() bool { return strings.Contains(server.logged(), "stopping") })
	write(t, filepath.Join(repository, "go"), "")
	if err := <-pushed; err != nil {
		t.Errorf("the push failed: %v", err)
	}
	expect(t, "exit code", <-stopped, 0)
}
