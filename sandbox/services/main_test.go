package main

// The tests start the programs as processes of their own, so that signals, kills and arguments are the real ones: the
// test binary, called by the name of a program, is that program.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; a loaded machine with two cores needs most of it.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if _, known := programs[name]; known || name == natsServer {
		// A program must not outlive the tests, even if they crash: then its end of this pipe closes.
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(3, "lifeline"))
			os.Exit(99)
		}()
		if name == natsServer {
			runNatsServer()
		}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type process struct {
	command *exec.Cmd
	// url is where it listens, for those that do.
	url      string
	lifeline *os.File
	ended    chan struct{}

	mutex sync.Mutex
	log   bytes.Buffer
}

// launch starts a program and returns at once.
func launch(t *testing.T, environment []string, name string, arguments ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		command: &exec.Cmd{
			Path:       self,
			Args:       append([]string{name}, arguments...),
			Env:        append(os.Environ(), environment...),
			ExtraFiles: []*os.File{ours},
		},
		lifeline: theirs,
		ended:    make(chan struct{}),
	}
	stderr, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.mutex.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mutex.Unlock()
		}
		_ = p.command.Wait()
	}()
	t.Cleanup(func() {
		p.kill(t)
		theirs.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.logged())
		}
	})
	return p
}

// start launches a program that listens and waits until it does.
func start(t *testing.T, name string, arguments ...string) *process {
	t.Helper()
	return startWith(t, nil, name, arguments...)
}

func startWith(t *testing.T, environment []string, name string, arguments ...string) *process {
	t.Helper()
	p := launch(t, environment, name, arguments...)
	eventually(t, name+" listens", func() bool {
		if p.hasEnded() {
			t.Fatalf("%s ended:\n%s", name, p.logged())
		}
		_, after, found := strings.Cut(p.logged(), "listening on ")
		address, _, whole := strings.Cut(after, "\n")
		p.url = "http://" + address
		return found && whole
	})
	return p
}

func (p *process) logged() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.log.String()
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill is `kill -9`.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("failed to kill: %v", err)
	}
	p.wait(t)
}

// terminate asks it to stop and gives its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("failed to signal: %v", err)
	}
	p.wait(t)
	return p.command.ProcessState.ExitCode()
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Errorf("process %d did not end", p.command.Process.Pid)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call sends one request and gives the status, headers and body of the answer.
func call(t *testing.T, method, url string, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(content)
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestWrongUseIsExitCodeTwoAndOneLine(t *testing.T) {
	for name, arguments := range map[string][]string{
		"registry":             {},
		"git-server":           {"--root", "x"},
		"provisioner":          {"--root", "x"},
		"nats-config-reloader": {},
		"nats-exporter":        {"-varz"},
	} {
		p := launch(t, nil, name, arguments...)
		p.wait(t)
		expect(t, name+" exit code", p.command.ProcessState.ExitCode(), 2)
		if !strings.HasPrefix(p.logged(), name+": ") || strings.Count(p.logged(), "\n") != 1 {
			t.Errorf("%s said %q", name, p.logged())
		}
	}
}
