package main

// What the programs share about their command line: strict parsing, and flags that must be given.

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// usageError is a command line that cannot be right whatever the machine is like; it ends with exit code 2.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

// parse refuses what it does not know and positional arguments beyond those that are named.
func parse(flags *flag.FlagSet, arguments []string, positional ...string) error {
	flags.SetOutput(os.Stderr)
	if err := flags.Parse(arguments); err != nil {
		if err == flag.ErrHelp {
			return err
		}
		return usageError{err.Error()}
	}
	if flags.NArg() != len(positional) {
		return usageError{fmt.Sprintf("got %d arguments after the flags, want %d %s", flags.NArg(), len(positional), strings.Join(positional, " "))}
	}
	return nil
}

// require names the first flag among these that was left empty.
func require(flags *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Lookup(name).Value.String() == "" {
			return usageError{fmt.Sprintf("flag `--%s` is missing", name)}
		}
	}
	return nil
}
