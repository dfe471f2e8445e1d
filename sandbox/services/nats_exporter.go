package main

// Stands in for natsio/prometheus-nats-exporter, which Argo Events starts beside each NATS server: it turns the numbers
// of the server's monitoring pages into Prometheus text. The names are `<prefix>_<page>_<field>`, with the field as
// NATS spells it, so that a number that a later NATS adds needs no change here.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	scrapeTime = 5 * time.Second
	// A page with every consumer is some hundred bytes for each; what is larger is not a monitoring page.
	largestPage = 64 << 20
)

// jetStreamDepths are the values of `-jsz` and what they ask NATS for.
var jetStreamDepths = map[string]string{
	"accounts":  "?accounts=true",
	"streams":   "?accounts=true&streams=true",
	"consumers": "?accounts=true&streams=true&consumers=true",
	"all":       "?accounts=true&streams=true&consumers=true",
}

func runExporter(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("nats-exporter", flag.ContinueOnError)
	address := flags.String("addr", "0.0.0.0", "address to serve plain HTTP on")
	port := flags.Int("port", 7777, "port to serve plain HTTP on")
	prefix := flags.String("prefix", "nats", "what the name of each metric begins with")
	internalID := flags.Bool("use_internal_server_id", false, "label with the id that NATS gave itself, not with the URL")
	varz := flags.Bool("varz", false, "export the page of the server")
	connz := flags.Bool("connz", false, "export the page of the connections")
	routez := flags.Bool("routez", false, "export the page of the routes")
	subz := flags.Bool("subz", false, "export the page of the subscriptions")
	jsz := flags.String("jsz", "", "export the page of JetStream down to `accounts`, streams, consumers or all")
	if err := parse(flags, arguments, "URL"); err != nil {
		return err
	}
	exporter := &exporter{prefix: *prefix, target: strings.TrimSuffix(flags.Arg(0), "/"), internalID: *internalID}
	if target, err := url.Parse(exporter.target); err != nil || target.Host == "" {
		return usageError{fmt.Sprintf("`%s` is not the URL of a NATS monitoring endpoint", flags.Arg(0))}
	}
	depth, known := jetStreamDepths[*jsz]
	if *jsz != "" && !known {
		return usageError{fmt.Sprintf("`%s` is not a depth of `-jsz`", *jsz)}
	}
	for _, page := range []struct {
		wanted bool
		page   monitoringPage
	}{
		{*varz, monitoringPage{"varz", "/varz"}},
		{*connz, monitoringPage{"connz", "/connz"}},
		{*routez, monitoringPage{"routez", "/routez"}},
		{*subz, monitoringPage{"subz", "/subsz"}},
		{*jsz != "", monitoringPage{"jsz", "/jsz" + depth}},
	} {
		if page.wanted {
			exporter.pages = append(exporter.pages, page.page)
		}
	}
	if len(exporter.pages) == 0 {
		return usageError{"no page to export: give `-varz`, `-connz`, `-routez`, `-subz` or `-jsz`"}
	}
	return serve(ctx, net.JoinHostPort(*address, strconv.Itoa(*port)), exporter)
}

type monitoringPage struct{ name, path string }

type exporter struct {
	prefix     string
	target     string
	internalID bool
	pages      []monitoringPage
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		answer(w, http.StatusOK, "metrics are at /metrics")
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		e.collect(r.Context()).write(w)
	default:
		answer(w, http.StatusNotFound, "metrics are at /metrics")
	}
}

// collect never fails: that NATS is away, or one page of it, is a metric.
func (e *exporter) collect(ctx context.Context) metrics {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	collected := metrics{}
	up := "1"
	if err := e.collectPages(ctx, collected); err != nil {
		log.Print(err)
		up = "0"
	}
	collected.add(e.prefix+"_up", "gauge", up)
	return collected
}

// collectPages adds all that is answered, and gives what was not.
func (e *exporter) collectPages(ctx context.Context, collected metrics) error {
	server := []string{"server_id", e.target}
	if e.internalID {
		// Not every page says whose it is.
		var varz document
		if err := e.fetch(ctx, "/varz", &varz); err != nil {
			return err
		}
		server[1] = varz.text("server_id")
	}
	var failures []error
	for _, page := range e.pages {
		failures = append(failures, e.collectPage(ctx, collected, page, server))
	}
	return errors.Join(failures...)
}

// A document is a page, or a part of one, whose fields are not known beforehand. Its numbers stay the text that NATS
// wrote: a counter of 64 bits does not survive a float.
type document map[string]json.RawMessage

func (d document) text(field string) string {
	var text string
	_ = json.Unmarshal(d[field], &text) // another type, or none, has no text
	return text
}

// jetStreamDetail is what `jsz` holds below its first level.
type jetStreamDetail struct {
	Accounts []struct {
		Name    string `json:"name"`
		Streams []struct {
			Name      string     `json:"name"`
			State     document   `json:"state"`
			Consumers []document `json:"consumer_detail"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

func (e *exporter) collectPage(ctx context.Context, collected metrics, page monitoringPage, server []string) error {
	var body json.RawMessage
	if err := e.fetch(ctx, page.path, &body); err != nil {
		return err
	}
	var top document
	if err := json.Unmarshal(body, &top); err != nil {
		return fmt.Errorf("failed to read the page `%s`: %w", page.path, err)
	}
	var detail jetStreamDetail
	if err := json.Unmarshal(body, &detail); err != nil {
		return fmt.Errorf("failed to read the page `%s`: %w", page.path, err)
	}
	prefix := e.prefix + "_" + page.name + "_"
	collected.addNumbers(prefix, top, server)
	for _, account := range detail.Accounts {
		for _, stream := range account.Streams {
			labels := append(slices.Clone(server), "account", account.Name, "stream", stream.Name)
			collected.addNumbers(prefix+"stream_", stream.State, labels)
			for _, consumer := range stream.Consumers {
				collected.addNumbers(prefix+"consumer_", consumer, append(slices.Clone(labels), "consumer", consumer.text("name")))
			}
		}
	}
	return nil
}

func (e *exporter) fetch(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.target+path, nil)
	if err != nil {
		return fmt.Errorf("failed to ask for the page `%s`: %w", path, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("failed to get a page: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("failed to get the page `%s`: status `%s`", path, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, largestPage)).Decode(into); err != nil {
		return fmt.Errorf("failed to read the page `%s`: %w", path, err)
	}
	return nil
}

// metrics are kept by name: the text format wants all lines of one name together.
type metrics map[string]*metric

type metric struct {
	kind  string
	lines []string
}

// counters only grow, and are rates to whoever reads them; all other numbers are gauges.
var counters = map[string]bool{
	"in_msgs": true, "out_msgs": true, "in_bytes": true, "out_bytes": true,
	"total_connections": true, "slow_consumers": true, "num_inserts": true, "num_removes": true, "num_matches": true,
}

// addNumbers takes the fields that are numbers; labels are pairs of name and value.
func (m metrics) addNumbers(prefix string, fields document, labels []string) {
	for field, value := range fields {
		if _, err := strconv.ParseFloat(string(value), 64); err != nil {
			continue
		}
		kind := "gauge"
		if counters[field] {
			kind = "counter"
		}
		m.add(prefix+field, kind, string(value), labels...)
	}
}

func (m metrics) add(name, kind, value string, labels ...string) {
	if m[name] == nil {
		m[name] = &metric{kind: kind}
	}
	line := name
	if len(labels) > 0 {
		pairs := make([]string, 0, len(labels)/2)
		for pair := range slices.Chunk(labels, 2) {
			pairs = append(pairs, pair[0]+`="`+labelEscapes.Replace(pair[1])+`"`)
		}
		line += "{" + strings.Join(pairs, ",") + "}"
	}
	m[name].lines = append(m[name].lines, line+" "+value)
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (m metrics) write(w io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(w, "# TYPE %s %s\n%s\n", name, m[name].kind, strings.Join(m[name].lines, "\n"))
	}
}
