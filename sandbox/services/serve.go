package main

// How every program here listens: it says where, and on a signal it finishes the requests that are under way.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// drainTime is what a running push or pull gets after the signal; the supervisor kills after 30 s.
const drainTime = 15 * time.Second

// serve answers until ctx ends. The address is printed once it is bound, so that port 0 can be used and found.
func serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("failed to listen: %w", err)
	}
	log.Printf("listening on %s", listener.Addr())

	// No limit on reading or writing as a whole: images and packs are large and the machine is slow.
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	select {
	case err := <-ended:
		return fmt.Errorf("failed to serve on `%s`: %w", address, err)
	case <-ctx.Done():
	}
	log.Printf("stopping, requests get %s to finish", drainTime)
	drain, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		_ = server.Close()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("failed to stop: %w", err)
		}
		log.Printf("cut off requests that did not finish in %s", drainTime)
	}
	return nil
}

// answer writes one line of text with a status, the only form of body that is not somebody else's protocol.
func answer(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n")
}
