package main

// The companions of NATS are tested beside a real NATS server, as a process of its own, with files as a kubelet lays
// them out.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer is the name that makes the test binary a NATS server; its argument is the configuration file.
const natsServer = "nats-server"

func runNatsServer() {
	options, err := server.ProcessConfigFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	nats, err := server.NewServer(options)
	if err != nil {
		log.Fatal(err)
	}
	nats.ConfigureLogger()
	go nats.Start()
	if !nats.ReadyForConnections(patience) {
		log.Fatal("nats is not ready")
	}
	// In a form that `start` understands, and with the port for clients behind it.
	log.Printf("listening on %s\nclients %s", nats.MonitorAddr(), nats.Addr())
	nats.WaitForShutdown()
	os.Exit(0)
}

// configMount is a folder as a kubelet mounts a ConfigMap: files are links through `..data`, which is itself a link that
// is exchanged as a whole.
type configMount struct {
	folder  string
	version int
}

func (m *configMount) update(t *testing.T, files map[string]string) {
	t.Helper()
	m.version++
	version := fmt.Sprintf("..%d", m.version)
	if err := os.Mkdir(filepath.Join(m.folder, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		write(t, filepath.Join(m.folder, version, name), content)
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(m.folder, name)) // there from the second time on
	}
	draft := filepath.Join(m.folder, "..data_tmp")
	if err := os.Symlink(version, draft); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, filepath.Join(m.folder, "..data")); err != nil {
		t.Fatal(err)
	}
}

func (m *configMount) file(name string) string { return filepath.Join(m.folder, name) }

// natsFiles are a configuration with its limits in an included file, where Argo Events has the accounts.
func natsFiles(state string, payload int) map[string]string {
	return map[string]string{
		"nats-js.conf": fmt.Sprintf("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\npid_file: %q\njetstream { store_dir: %q }\ninclude ./limits.conf\n", filepath.Join(state, "nats.pid"), state),
		"limits.conf":  fmt.Sprintf("max_payload: %d\n", payload),
	}
}

func page(t *testing.T, nats *process, path string) map[string]any {
	t.Helper()
	_, _, body := call(t, http.MethodGet, nats.url+path, "")
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestReloaderMakesNatsReadAChangedMount(t *testing.T) {
	state := t.TempDir()
	mount := configMount{folder: t.TempDir()}
	mount.update(t, natsFiles(state, 1000))
	nats := start(t, natsServer, mount.file("nats-js.conf"))

	reloader := launch(t, nil, "nats-config-reloader", "-pid", filepath.Join(state, "nats.pid"), "-config", mount.file("nats-js.conf"))
	eventually(t, "the reloader runs", func() bool { return strings.Contains(reloader.logged(), "looking after") })

	mount.update(t, natsFiles(state, 2000))
	eventually(t, "nats has the new limit", func() bool { return page(t, nats, "/varz")["max_payload"] == 2000.0 })

	expect(t, "exit code of the reloader", reloader.terminate(t), 0)
	expect(t, "signals", strings.Count(reloader.logged(), "told process"), 1)
}

func TestReloaderWantsToSignalOnlyWhenContentChanged(t *testing.T) {
	state := t.TempDir()
	mount := configMount{folder: t.TempDir()}
	// There is no such file: an attempt to signal is an error.
	r := &reloader{pidFile: filepath.Join(state, "nats.pid"), files: []string{mount.file("nats-js.conf")}}
	for _, step := range []struct {
		what    string
		files   map[string]string
		signals bool
	}{
		{"first look", natsFiles(state, 1000), false},
		{"the same under new links", natsFiles(state, 1000), false},
		{"an included file changed", natsFiles(state, 2000), true},
		{"changed and not delivered", natsFiles(state, 2000), true},
		{"changed back before it was delivered", natsFiles(state, 1000), false},
	} {
		mount.update(t, step.files)
		err := r.look()
		expect(t, step.what, err != nil && strings.Contains(err.Error(), "process id"), step.signals)
	}
	if err := os.Remove(mount.file("limits.conf")); err != nil {
		t.Fatal(err)
	}
	if err := r.look(); err == nil || !strings.Contains(err.Error(), "limits.conf") {
		t.Errorf("a file that is missing gave %v", err)
	}
}

func TestReloaderSignalsWhenNatsIsBack(t *testing.T) {
	state := t.TempDir()
	mount := configMount{folder: t.TempDir()}
	mount.update(t, natsFiles(state, 1000))
	pid := filepath.Join(state, "nats.pid")
	reloader := launch(t, nil, "nats-config-reloader", "-pid", pid, "-config", mount.file("nats-js.conf"))
	eventually(t, "the reloader runs", func() bool { return strings.Contains(reloader.logged(), "looking after") })

	// None of these may be signalled: the first is nobody, the others are groups of processes.
	for _, wrong := range []string{"", "0", "-1", "nonsense"} {
		write(t, pid, wrong)
		mount.update(t, natsFiles(state, 1000+mount.version))
		eventually(t, fmt.Sprintf("it complains of %q", wrong), func() bool { return strings.Contains(reloader.logged(), fmt.Sprintf("holds %q", wrong)) })
	}
	nats := start(t, natsServer, mount.file("nats-js.conf"))
	eventually(t, "it signals", func() bool {
		return strings.Contains(reloader.logged(), "told process "+strconv.Itoa(nats.command.Process.Pid))
	})
	expect(t, "reloader still runs", reloader.hasEnded(), false)
}

// say speaks NATS's own protocol, which needs no client for as little as this.
func say(t *testing.T, nats *process, lines ...string) {
	t.Helper()
	_, after, _ := strings.Cut(nats.logged(), "clients ")
	address, _, _ := strings.Cut(after, "\n")
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(connection, "CONNECT {\"verbose\":false}\r\n%s\r\nPING\r\n", strings.Join(lines, "\r\n"))
	for answers := bufio.NewScanner(connection); answers.Scan(); {
		if answers.Text() == "PONG" {
			return
		}
	}
	t.Fatal("nats did not answer")
}

func publish(subject, payload string) string {
	return fmt.Sprintf("PUB %s %d\r\n%s", subject, len(payload), payload)
}

// startExporter passes what the StatefulSet of Argo Events passes, and a port that is free.
func startExporter(t *testing.T, target string) *process {
	return start(t, "nats-exporter", "-addr", "127.0.0.1", "-port", "0",
		"-connz", "-routez", "-subz", "-varz", "-prefix=nats", "-use_internal_server_id", "-jsz=all", target)
}

// sample finds the value of the one line that begins so.
func sample(t *testing.T, text, start string) string {
	t.Helper()
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) {
			found = append(found, strings.TrimSpace(line[strings.LastIndex(line, " "):]))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines begin with %q in:\n%s", len(found), start, text)
	}
	return found[0]
}

func TestExporterShowsARealNatsServer(t *testing.T) {
	state := t.TempDir()
	mount := configMount{folder: t.TempDir()}
	mount.update(t, natsFiles(state, 100_000))
	nats := start(t, natsServer, mount.file("nats-js.conf"))
	say(t, nats,
		publish("$JS.API.STREAM.CREATE.events", `{"name":"events","subjects":["event.>"],"storage":"memory","retention":"limits","num_replicas":1}`),
		publish("$JS.API.CONSUMER.DURABLE.CREATE.events.worker", `{"stream_name":"events","config":{"durable_name":"worker","ack_policy":"explicit","deliver_policy":"all"}}`))
	eventually(t, "the consumer is there", func() bool { return page(t, nats, "/jsz")["consumers"] == 1.0 })
	say(t, nats, "SUB event.a 1", publish("event.a", "one"), publish("event.a", "two"), publish("event.b", "three"))
	eventually(t, "the messages are there", func() bool { return page(t, nats, "/jsz")["messages"] == 3.0 })

	exporter := startExporter(t, nats.url)
	status, _, _ := call(t, http.MethodGet, exporter.url+"/", "")
	expect(t, "GET /", status, http.StatusOK)
	status, headers, text := call(t, http.MethodGet, exporter.url+"/metrics", "")
	expect(t, "GET /metrics", status, http.StatusOK)
	expect(t, "content type", headers.Get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")

	server := fmt.Sprintf("{server_id=%q", page(t, nats, "/varz")["server_id"])
	stream := server + `,account="$G",stream="events"`
	for start, want := range map[string]string{
		"nats_up ":                                                           "1",
		"nats_varz_in_msgs" + server + "}":                                   "5",
		"nats_varz_connections" + server:                                     "2",
		"nats_varz_max_payload" + server:                                     "100000",
		"nats_connz_num_connections" + server:                                "2",
		"nats_routez_num_routes" + server:                                    "0",
		"nats_jsz_streams" + server:                                          "1",
		"nats_jsz_consumers" + server:                                        "1",
		"nats_jsz_messages" + server:                                         "3",
		"nats_jsz_stream_messages" + stream + "}":                            "3",
		"nats_jsz_consumer_num_pending" + stream + `,consumer="worker"}`:     "3",
		"# TYPE nats_varz_in_msgs ":                                          "counter",
		"# TYPE nats_varz_mem ":                                              "gauge",
		"nats_jsz_stream_last_seq" + stream + "}":                            "3",
		"nats_jsz_consumer_num_ack_pending" + stream + `,consumer="worker"}`: "0",
		"nats_jsz_stream_consumer_count" + stream + "}":                      "1",
	} {
		expect(t, start, sample(t, text, start), want)
	}
	for _, start := range []string{"nats_varz_mem" + server, "nats_varz_in_bytes" + server, "nats_varz_out_bytes" + server, "nats_subz_num_subscriptions" + server, "nats_jsz_bytes" + server} {
		if value, err := strconv.ParseFloat(sample(t, text, start), 64); err != nil || value <= 0 {
			t.Errorf("%s is %v", start, value)
		}
	}
	// Each name has one TYPE line, in front of all its samples.
	seen := map[string]bool{}
	name := ""
	for line := range strings.Lines(text) {
		if after, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(after, " ")
			expect(t, "second TYPE of "+name, seen[name], false)
			seen[name] = true
		} else if !strings.HasPrefix(line, name) {
			t.Errorf("%q does not belong to %s", line, name)
		}
	}

	nats.kill(t)
	status, _, text = call(t, http.MethodGet, exporter.url+"/metrics", "")
	expect(t, "GET /metrics without nats", status, http.StatusOK)
	expect(t, "metrics without nats", text, "# TYPE nats_up gauge\nnats_up 0\n")
	expect(t, "exit code", exporter.terminate(t), 0)
}

func TestExporterOutlivesAPageThatIsNotOne(t *testing.T) {
	registry := startRegistry(t, t.TempDir()) // answers, but not as NATS does
	exporter := startExporter(t, registry.url)
	status, _, text := call(t, http.MethodGet, exporter.url+"/metrics", "")
	expect(t, "status", status, http.StatusOK)
	expect(t, "up", sample(t, text, "nats_up "), "0")
}

func TestLabelsAreEscaped(t *testing.T) {
	collected := metrics{}
	collected.add("m", "gauge", "1", "stream", "a\"b\\c\nd")
	var text strings.Builder
	collected.write(&text)
	expect(t, "text", text.String(), "# TYPE m gauge\nm{stream=\"a\\\"b\\\\c\\nd\"} 1\n")
}
