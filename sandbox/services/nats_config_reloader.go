package main

// Stands in for natsio/nats-server-config-reloader, which Argo Events starts beside each NATS server: it tells the
// server to read its configuration again when that has changed.

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lookInterval is short beside the minute that a kubelet takes to bring a change into a mount. Files are read and
// compared, not watched: such a mount is changed by exchanging links above the file, which a watch on it never sees.
const lookInterval = time.Second

func runReloader(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("nats-config-reloader", flag.ContinueOnError)
	pidFile := flags.String("pid", "/var/run/nats/nats.pid", "file that the NATS server writes its process id to")
	var files fileList
	flags.Var(&files, "config", "configuration file to look after, with all that it includes; may be repeated")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if err := require(flags, "pid", "config"); err != nil {
		return err
	}
	return (&reloader{pidFile: *pidFile, files: files}).run(ctx)
}

type fileList []string

func (f *fileList) String() string { return strings.Join(*f, ",") }

func (f *fileList) Set(file string) error {
	*f = append(*f, file)
	return nil
}

type reloader struct {
	pidFile string
	files   []string
	// loaded is the content that the server is known to have; nil until all of it could be read once.
	loaded *contentSum
	// trouble is the last error, to say each one once and not every second.
	trouble string
}

type contentSum [sha256.Size]byte

func (r *reloader) run(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		r.report(r.look())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *reloader) report(err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble != "" && trouble != r.trouble {
		log.Printf("%s, trying again every %s", trouble, lookInterval)
	}
	r.trouble = trouble
}

// look signals if the content is not the one of last time. Only a signal that was delivered counts as loaded, so a
// server that is away gets it when it is back. The first look never signals: a server that is just starting has read
// the files, and before it can handle the signal it would die of it.
func (r *reloader) look() error {
	sum, err := sumContent(r.files)
	if err != nil {
		return err
	}
	switch {
	case r.loaded == nil:
		log.Printf("looking after `%s` for the process in `%s`", strings.Join(r.files, "`, `"), r.pidFile)
	case *r.loaded != sum:
		pid, err := readPid(r.pidFile)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
			return fmt.Errorf("failed to signal process %d of `%s`: %w", pid, r.pidFile, err)
		}
		log.Printf("configuration changed, told process %d to read it", pid)
	}
	r.loaded = &sum
	return nil
}

// readPid takes nothing for a process that would make the signal go to a group, to all or to ourselves.
func readPid(file string) (int, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("failed to read the process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 || pid == os.Getpid() {
		return 0, fmt.Errorf("failed to read the process id: `%s` holds %q", file, content)
	}
	return pid, nil
}

// sumContent covers the files and those that they include: Argo Events keeps the accounts in an included one.
func sumContent(files []string) (contentSum, error) {
	hash := sha256.New()
	seen := map[string]bool{}
	for open := slices.Clone(files); len(open) > 0; {
		file := open[0]
		open = open[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		content, err := os.ReadFile(file)
		if err != nil {
			return contentSum{}, fmt.Errorf("failed to read the configuration: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n", file, len(content))
		hash.Write(content)
		for _, match := range includeLine.FindAllSubmatch(content, -1) {
			open = append(open, filepath.Join(filepath.Dir(file), string(match[1])))
		}
	}
	return contentSum(hash.Sum(nil)), nil
}

// NATS takes the path as relative to the file, with or without quotes.
var includeLine = regexp.MustCompile(`(?m)^\s*include\s+['"]?([^'"\s;]+)`)
