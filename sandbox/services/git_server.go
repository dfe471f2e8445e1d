package main

// The sandbox's Git server: the smart HTTP protocol through `git http-backend`, and three calls to make, list and remove
// repositories. Anything that is not one of the protocol's three endpoints is refused before git sees it.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"strconv"
	"strings"
)

// gitEnvironment is all that git sees of us besides PATH and the request: no configuration of the machine or of a user,
// and ours as variables, so that repositories hold none that could differ.
var gitEnvironment = append([]string{
	"HOME=/nonexistent",
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_GLOBAL=/dev/null",
	"GIT_HTTP_EXPORT_ALL=1",
}, gitConfiguration(
	// Who may push is decided before git is started.
	"http.uploadpack", "true",
	"http.receivepack", "true",
	// The folder may belong to whoever set the sandbox up.
	"safe.directory", "*",
	// Deployments fetch the one commit that they were told of, also with clients of the old protocol.
	"uploadpack.allowAnySHA1InWant", "true",
	"uploadpack.allowFilter", "true",
	// A garbage collection in the background would outlive the server.
	"gc.autoDetach", "false",
)...)

// gitConfiguration puts pairs of key and value into the variables that git reads as its configuration.
func gitConfiguration(pairs ...string) []string {
	variables := []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(len(pairs)/2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		variables = append(variables,
			fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i/2, pairs[i]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i/2, pairs[i+1]))
	}
	return variables
}

func runGitServer(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("git-server", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:3000", "address and port to serve plain HTTP on")
	root := flags.String("root", "", "folder that holds the repositories; made if absent")
	users := flags.String("users", "", "file of `user:password` lines, read anew for each request")
	anonymousRead := flags.Bool("anonymous-read", false, "fetch and list without a password")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if err := require(flags, "root", "users"); err != nil {
		return err
	}
	// The CGI package hands this one on by itself.
	if err := os.Unsetenv("LD_LIBRARY_PATH"); err != nil {
		return fmt.Errorf("failed to clear the environment: %w", err)
	}
	repositories, err := openRepositories(*root)
	if err != nil {
		return err
	}
	server := &gitServer{repositories: repositories, users: gitUsers{*users}, anonymousRead: *anonymousRead}
	if _, err := server.users.read(); err != nil {
		return err
	}
	return serve(ctx, *listen, server)
}

type gitServer struct {
	repositories  *gitRepositories
	users         gitUsers
	anonymousRead bool
}

// ServeHTTP routes by hand: the standard multiplexer answers a path with `..` by a redirect, and we refuse it.
func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/healthz":
		answer(w, http.StatusOK, "ok")
	case path == "/_repos" || path == "/_repos/":
		s.listRepositories(w, r)
	case strings.HasPrefix(path, "/_repos/"):
		s.changeRepository(w, r, strings.TrimPrefix(path, "/_repos/"))
	default:
		s.serveRepository(w, r)
	}
}

func (s *gitServer) listRepositories(w http.ResponseWriter, r *http.Request) {
	if !allowMethods(w, r, http.MethodGet) {
		return
	}
	if _, ok := s.admit(w, r, s.anonymousRead); !ok {
		return
	}
	names, err := s.repositories.list()
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, name := range names {
		fmt.Fprintln(w, name)
	}
}

func (s *gitServer) changeRepository(w http.ResponseWriter, r *http.Request, text string) {
	if !allowMethods(w, r, http.MethodPut, http.MethodDelete) {
		return
	}
	user, ok := s.admit(w, r, false)
	if !ok {
		return
	}
	name, err := parseRepositoryName(text)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.Method == http.MethodDelete {
		if err := s.repositories.remove(name); err != nil {
			refuse(w, name, err)
			return
		}
		log.Printf("`%s` removed `%s`", user, name)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	created, err := s.repositories.create(r.Context(), name)
	switch {
	case err != nil:
		refuse(w, name, err)
	case created:
		log.Printf("`%s` created `%s`", user, name)
		answer(w, http.StatusCreated, fmt.Sprintf("created `%s`", name))
	default:
		answer(w, http.StatusOK, fmt.Sprintf("`%s` exists", name))
	}
}

// An endpoint is one of the three of the smart protocol; the service decides who may use it.
type endpoint struct {
	name    string
	method  string
	service string
}

const (
	uploadPack  = "git-upload-pack"  // what git calls a fetch on this side
	receivePack = "git-receive-pack" // and a push
)

// findEndpoint takes a path apart. The name is not yet checked.
func findEndpoint(r *http.Request) (name string, found endpoint, ok bool) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if name, ok := strings.CutSuffix(path, "/info/refs"); ok {
		service := r.URL.Query().Get("service")
		return name, endpoint{"info/refs", http.MethodGet, service}, service == uploadPack || service == receivePack
	}
	for _, service := range []string{uploadPack, receivePack} {
		if name, ok := strings.CutSuffix(path, "/"+service); ok {
			return name, endpoint{service, http.MethodPost, service}, true
		}
	}
	return path, endpoint{}, false
}

func (s *gitServer) serveRepository(w http.ResponseWriter, r *http.Request) {
	text, found, ok := findEndpoint(r)
	if !ok {
		answer(w, http.StatusNotFound, "only the smart Git protocol is served here, and `/_repos` and `/healthz`")
		return
	}
	if !allowMethods(w, r, found.method) {
		return
	}
	user, ok := s.admit(w, r, s.anonymousRead && found.service == uploadPack)
	if !ok {
		return
	}
	name, err := parseRepositoryName(text)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	err = s.repositories.find(name)
	if errors.Is(err, errNoRepository) && found.service == receivePack {
		// A push makes its repository: who may push may create, and a newcomer expects it.
		if _, err = s.repositories.create(r.Context(), name); err == nil {
			log.Printf("`%s` created `%s` by a push", user, name)
		}
	}
	if err != nil {
		refuse(w, name, err)
		return
	}
	s.runBackend(w, r, name, found, user)
}

// runBackend streams the request into git and its answer back. What git is told is what was checked, not what was sent.
func (s *gitServer) runBackend(w http.ResponseWriter, r *http.Request, name repositoryName, found endpoint, user string) {
	environment := append([]string{"GIT_PROJECT_ROOT=" + s.repositories.root}, gitEnvironment...)
	if user != "" {
		environment = append(environment, "REMOTE_USER="+user)
	}
	request := r.Clone(r.Context())
	request.URL.Path = "/" + string(name) + "/" + found.name
	request.URL.RawPath = ""
	request.URL.RawQuery = ""
	if found.method == http.MethodGet {
		request.URL.RawQuery = "service=" + found.service
	}
	// Nothing that git starts needs the password.
	request.Header.Del("Authorization")
	// Git sends a pack of more than a megabyte in chunks. The CGI package refuses those, as CGI has no word for them;
	// git's backend reads a body without a length to its end, and the body is no longer in chunks when we read it.
	request.TransferEncoding = nil

	// The backend writes its headers before it has read the body; without this the server would then throw the rest of
	// the body away to make room for the answer.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		fail(w, fmt.Errorf("failed to read and write at once: %w", err))
		return
	}
	backend := cgi.Handler{
		Path: s.repositories.git,
		Args: []string{"http-backend"},
		Dir:  s.repositories.root,
		Env:  environment,
	}
	backend.ServeHTTP(w, request)
}

// admit lets a request pass that carries the password of a user, or one that needs none; otherwise it answers.
// Credentials that are wrong are refused even where none are needed: somebody thinks they are right.
func (s *gitServer) admit(w http.ResponseWriter, r *http.Request, open bool) (user string, ok bool) {
	user, password, given := r.BasicAuth()
	if !given && open {
		return "", true
	}
	if given {
		known, err := s.users.knows(user, password)
		if err != nil {
			fail(w, err)
			return "", false
		}
		if known {
			return user, true
		}
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="git", charset="UTF-8"`)
	answer(w, http.StatusUnauthorized, "a user and password that are in the users file are needed")
	return "", false
}

func allowMethods(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, method := range methods {
		if r.Method == method {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	answer(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %q is not allowed here", r.Method))
	return false
}

// refuse answers for a repository that is not there, or that we failed to get at.
func refuse(w http.ResponseWriter, name repositoryName, err error) {
	switch {
	case errors.Is(err, errNoRepository):
		answer(w, http.StatusNotFound, fmt.Sprintf("no repository `%s`", name))
	case errors.Is(err, errNotRepository):
		answer(w, http.StatusBadRequest, fmt.Sprintf("no repository can be `%s`: %v", name, err))
	default:
		fail(w, err)
	}
}

// fail answers for an error that is ours; its text holds paths of this machine and goes to the log alone.
func fail(w http.ResponseWriter, err error) {
	log.Print(err)
	answer(w, http.StatusInternalServerError, "failed inside the server, its log says how")
}
