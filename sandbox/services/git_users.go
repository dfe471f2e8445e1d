package main

// Who may use the Git server: a file of `user:password` lines, read for every request, so that a change counts at once.

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"
)

type gitUsers struct{ file string }

// knows compares with every user there is, so that the time it takes says neither which users exist nor how much of a
// password was right. A file that cannot be read or understood lets nobody in.
func (u gitUsers) knows(user, password string) (bool, error) {
	credentials, err := u.read()
	if err != nil {
		return false, err
	}
	given := sha256.Sum256([]byte(user + ":" + password))
	found := 0
	for _, credential := range credentials {
		found |= subtle.ConstantTimeCompare(given[:], credential[:])
	}
	return found == 1, nil
}

// read gives the hashes of the lines. They make the comparison one of equal lengths; they are not kept.
func (u gitUsers) read() ([][sha256.Size]byte, error) {
	content, err := os.ReadFile(u.file)
	if err != nil {
		return nil, fmt.Errorf("failed to read the users: %w", err)
	}
	var credentials [][sha256.Size]byte
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		if user, password, ok := strings.Cut(line, ":"); !ok || user == "" || password == "" {
			// The line is not shown: it may be a password.
			return nil, fmt.Errorf("failed to read the users: `%s` line %d is not `user:password`", u.file, number)
		}
		credentials = append(credentials, sha256.Sum256([]byte(line)))
	}
	if len(credentials) == 0 {
		return nil, errors.New("failed to read the users: `" + u.file + "` names none")
	}
	return credentials, nil
}
