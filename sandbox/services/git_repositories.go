package main

// The bare repositories that the Git server keeps: names that can only be built valid, and creation and removal that
// are one rename, so that a killed server leaves either a whole repository or none.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// A repositoryName is a relative path such as `team/app.git`.
type repositoryName string

// A part begins with a letter or a digit: not with a dot, which keeps `..` and the unfinished folders out, nor with an
// underscore, which keeps `_repos` out.
var namePart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

const (
	repositorySuffix = ".git"
	longestName      = 400
	// Folders with this prefix are repositories on their way in or out; nothing serves or lists them.
	unfinished = ".unfinished-"
)

func parseRepositoryName(text string) (repositoryName, error) {
	// Whatever is refused is quoted: it may hold control characters, and the reason is one line.
	if len(text) > longestName {
		return "", fmt.Errorf("repository name is longer than %d bytes", longestName)
	}
	parts := strings.Split(text, "/")
	for i, part := range parts {
		if !namePart.MatchString(part) || strings.Contains(part, "..") {
			return "", fmt.Errorf("repository name %q: part %q must begin with a letter or a digit and hold only those, `.`, `_` and `-`", text, part)
		}
		// Not only the last one and never another one: a repository inside a repository would be served as its files.
		if last := i == len(parts)-1; last != strings.HasSuffix(part, repositorySuffix) {
			return "", fmt.Errorf("repository name %q: its last part, and no other, ends with `%s`", text, repositorySuffix)
		}
	}
	return repositoryName(text), nil
}

var (
	errNoRepository  = errors.New("no such repository")
	errNotRepository = errors.New("a link or a file is in the way")
)

// gitRepositories is a folder of bare repositories that this process alone writes to.
type gitRepositories struct {
	root string
	git  string
	// One at a time, because removal takes empty parents away and creation makes them.
	changing sync.Mutex
}

// openRepositories takes over the folder and clears away what an earlier process did not finish.
func openRepositories(root string) (*gitRepositories, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("failed to find the git program: %w", err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("failed to make the root: %w", err)
	}
	// The root itself may be reached through a link; below it none is followed.
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve the root: %w", err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, fmt.Errorf("failed to resolve the root: %w", err)
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil, fmt.Errorf("failed to read the root: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(real, entry.Name())); err != nil {
				return nil, fmt.Errorf("failed to clear away `%s`: %w", entry.Name(), err)
			}
		}
	}
	return &gitRepositories{root: real, git: git}, nil
}

// find says whether the repository is there. A link on the way is not followed: it may lead out of the root.
func (r *gitRepositories) find(name repositoryName) error {
	at := r.root
	for part := range strings.SplitSeq(string(name), "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return errNoRepository
		case err != nil:
			return fmt.Errorf("failed to look for `%s`: %w", name, err)
		case !info.IsDir():
			return errNotRepository
		}
	}
	return nil
}

// create makes an empty bare repository whose branch is main. It is false if the repository was there before.
func (r *gitRepositories) create(ctx context.Context, name repositoryName) (bool, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.find(name); !errors.Is(err, errNoRepository) {
		return false, err
	}
	// No link is on this way, or find would have met it.
	at := filepath.Join(r.root, string(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return false, fmt.Errorf("failed to make the folders above `%s`: %w", name, err)
	}
	// Beside the repositories, as a rename stays within one file system.
	draft, err := os.MkdirTemp(r.root, unfinished)
	if err != nil {
		return false, fmt.Errorf("failed to make a folder for `%s`: %w", name, err)
	}
	defer os.RemoveAll(draft)
	// An empty template: the machine's one would bring its hooks along.
	command := exec.CommandContext(ctx, r.git, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", draft)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH")}, gitEnvironment...)
	if output, err := command.CombinedOutput(); err != nil {
		return false, fmt.Errorf("failed to run git init for `%s`: %w: %s", name, err, firstLine(output))
	}
	// MkdirTemp makes it private; clones that run as another user may read it like the rest.
	if err := os.Chmod(draft, 0o755); err != nil {
		return false, fmt.Errorf("failed to open `%s` to readers: %w", name, err)
	}
	if err := os.Rename(draft, at); err != nil {
		return false, fmt.Errorf("failed to put `%s` in place: %w", name, err)
	}
	return true, nil
}

// remove takes the repository out of sight by a rename, then deletes it and the folders that became empty.
func (r *gitRepositories) remove(name repositoryName) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.find(name); err != nil {
		return err
	}
	grave, err := os.MkdirTemp(r.root, unfinished)
	if err != nil {
		return fmt.Errorf("failed to make a folder to remove `%s`: %w", name, err)
	}
	at := filepath.Join(r.root, string(name))
	if err := os.Rename(at, filepath.Join(grave, "removed")); err != nil {
		_ = os.Remove(grave)
		return fmt.Errorf("failed to remove `%s`: %w", name, err)
	}
	for parent := filepath.Dir(at); parent != r.root; parent = filepath.Dir(parent) {
		if os.Remove(parent) != nil {
			break // not empty: others live there
		}
	}
	if err := os.RemoveAll(grave); err != nil {
		return fmt.Errorf("failed to delete the files of `%s`: %w", name, err)
	}
	return nil
}

// list gives the names in order.
func (r *gitRepositories) list() ([]repositoryName, error) {
	var names []repositoryName
	err := filepath.WalkDir(r.root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we walk
		}
		if err != nil || path == r.root || !entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(r.root, path)
		if err != nil {
			return err
		}
		if name, err := parseRepositoryName(relative); err == nil {
			names = append(names, name)
			return fs.SkipDir
		}
		if !namePart.MatchString(entry.Name()) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list the repositories: %w", err)
	}
	return names, nil
}

func firstLine(output []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	return line
}
