//go:build unix

// Package rlship writes metrics, spans and events of one process for rlship to read: one file, standard library only.
//
//	w := rlship.Open("outputs/grpo-7b", "trainer")
//	defer w.Close()
//	w.Define("tokens", rlship.Metric{Reduce: []string{"sum"}})
//	for step := int64(0); step < 1000; step++ {
//		span := w.Span(step, "rollout")
//		w.Log(step, "loss", 0.53, "tokens", 4096)
//		span.End(nil)
//		w.Barrier(step)
//	}
//
// No call panics, waits for a disk or returns an error: what cannot be written is left out, counted in the file and said
// once on stderr. Callers, from any goroutine, fill a buffer of at most 8 MiB; a goroutine of the writer's own does the
// rest. All methods do nothing on a nil *Writer, and on a closed one.
package rlship

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const version = "0.1.0"

// NoStep is the step of what belongs to none: a stream record.
const NoStep int64 = -1

// NoScore is the score of a sample that has none.
var NoScore = math.NaN()

const (
	lineLimit = 1 << 20
	capacity  = 8 << 20
	// Barriers, defines and rollbacks are few and small, and losing one costs more than a line of values.
	reserve      = 1 << 20
	wakeAt       = 1 << 20
	defineLimit  = 64 << 10
	longestName  = 1000
	longestSpan  = 500
	longestActor = 200
	mostElements = 262_144
	// Elements that surely fit in one line, whatever their digits and weights are.
	elementsAtOnce = 8192
	mostTold       = 1000
	longestSetting = 65_536    // characters of a text of the run's configuration
	largestSetting = 512 << 10 // bytes of any value of it
	mostNoted      = 4 << 20   // bytes of run records that a new file repeats
	shortestToken  = 16
	stepsEnd       = 1 << 53
	ranksEnd       = 1 << 20

	flushEvery  = 500 * time.Millisecond
	beatEvery   = 10 * time.Second
	lookEvery   = 5 * time.Second
	closeWithin = 5 * time.Second
	sayWithin   = 100 * time.Millisecond
	backoff     = 100 * time.Millisecond
	backoffMost = 5 * time.Second
	// Where each attempt costs a new file, they have to be few.
	rarer = 12
)

// --- What a program says ---

// Metric says how a metric is reduced over ranks and observations.
type Metric struct {
	// Reduce is of mean sum min max first last std count p50 p90 p95 p99 hist rate sum_last, or custom names with a dot in them.
	// Empty leaves it to the catalogue, else to mean.
	Reduce  []string
	Unit    string
	PerRank bool // keep each rank's value
	Stream  bool // each observation is a point of its own
}

// Weighted is a value of several observations V and their weights W.
type Weighted struct{ V, W []float64 }

// Summary is a value that stands for N observations. Keys of Of: w, sum, min, max, first, last, m2; others are unknown.
type Summary struct {
	N  int64
	Of map[string]float64
}

// An Option of Open. What is not said comes from RLSHIP_*, else from the launcher's variables.
type Option func(*options)

type options struct {
	replica, axis, parent string
	rank, world, attempt  *int64
	labels                map[string]string
}

// Rank is this process's place among those of its replica.
func Rank(rank int64) Option { return func(o *options) { o.rank = &rank } }

// World is how many ranks the replica has.
func World(world int64) Option { return func(o *options) { o.world = &world } }

// Replica names which of several groups of ranks of this actor this one is in ("0").
func Replica(replica string) Option { return func(o *options) { o.replica = replica } }

// Attempt is how often this rank was started again.
func Attempt(attempt int64) Option { return func(o *options) { o.attempt = &attempt } }

// Axis names what the steps count ("global_step").
func Axis(axis string) Option { return func(o *options) { o.axis = axis } }

// Parent is the ID of the writer of the process that this one is a child of, working for the same rank.
func Parent(id string) Option { return func(o *options) { o.parent = id } }

// Labels are facts for people, such as the GPU.
func Labels(labels map[string]string) Option { return func(o *options) { o.labels = labels } }

// Writer writes one file.
type Writer struct {
	id       string
	mu       sync.Mutex
	share    float64 // of the ledger's keys
	buffer   buffer
	defines  []definition
	noted    []notedLine
	owed     bool // a full buffer dropped a run record
	told     map[string]bool
	// One more than the step of a barrier, of the last log, and that under way; 0 stands for no step.
	promised, logged, at int64
	saying   []<-chan struct{}
	closed   bool
	deadline time.Time // of closing
	wake     chan struct{}
	flushes  chan chan struct{}
	closing  chan struct{}
	ended    chan struct{}
	written  bool // all of it, when ended
}

// Open starts a writer. dir is the folder of the experiment ("": RLSHIP_DIR), actor the kind of worker ("":
// RLSHIP_ACTOR). It is nil, on which all methods do nothing, where RLSHIP_DISABLE is set or nothing says where to write.
func Open(dir, actor string, opts ...Option) *Writer {
	if disabled := os.Getenv("RLSHIP_DISABLE"); disabled != "" && disabled != "0" {
		return nil
	}
	dir, actor = cmp.Or(dir, os.Getenv("RLSHIP_DIR")), cmp.Or(actor, os.Getenv("RLSHIP_ACTOR"))
	if dir == "" || actor == "" {
		say("nothing is logged: give dir and actor, or set RLSHIP_DIR and RLSHIP_ACTOR")
		return nil
	}
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	w := &Writer{
		id:      newID(),
		told:    map[string]bool{},
		wake:    make(chan struct{}, 1),
		flushes: make(chan chan struct{}),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	var given options
	for _, option := range opts {
		option(&given)
	}
	w.share = ledgerShare(w.tell)
	who := detect(actor, &given, w.tell)
	file := &lineFile{w: w, folder: filepath.Join(dir, "rlship"), who: who, id: w.id, began: time.Now()}
	file.lookAt = time.Now().Add(lookEvery)
	ranks := time.Duration(who.world) * time.Second
	syncEvery := max(flushEvery, min(ranks/500, 2*time.Second), ranks/2000)
	go w.run(file, syncEvery)
	return w
}

// ID is the id of the file, for Parent in a child; "" if nothing is written.
func (w *Writer) ID() string {
	if w == nil {
		return ""
	}
	return w.id
}

// Define says how a metric is reduced, from here on.
func (w *Writer) Define(name string, metric Metric) {
	if w == nil {
		return
	}
	topic := "define " + shown(name)
	if err := usableName(name); err != nil {
		w.tell(topic, "define", err.Error())
		return
	}
	var reduce []string
	for _, one := range metric.Reduce {
		switch {
		case !usableReduction(one):
			w.tell(topic, "define", fmt.Sprintf("%.200q is no reduction: it is left out", one))
		case !slices.Contains(reduce, one):
			reduce = append(reduce, one)
		}
	}
	entry := append(appendString(nil, name), ":{"...)
	if len(reduce) == 1 {
		entry = append(appendString(append(entry, `"reduce":`...), reduce[0]), ',')
	} else if len(reduce) > 1 {
		entry = append(entry, `"reduce":[`...)
		for _, one := range reduce {
			entry = append(appendString(entry, one), ',')
		}
		entry = append(entry[:len(entry)-1], "],"...)
	}
	if metric.Unit != "" {
		entry = append(appendString(append(entry, `"unit":`...), firstChars(metric.Unit, longestName)), ',')
	}
	if metric.PerRank {
		entry = append(entry, `"per_rank":true,`...)
	}
	if metric.Stream {
		entry = append(entry, `"stream":true,`...)
	}
	entry = append(bytes.TrimSuffix(entry, []byte(",")), '}')
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.defines, func(d definition) bool { return d.name == name }); i >= 0 {
		w.defines[i].entry = entry
	} else {
		w.defines = append(w.defines, definition{name, entry})
	}
	w.add(slices.Concat([]byte(`{"kind":"define","m":{`), entry, []byte("}}\n")), NoStep, reserve)
}

// Log logs names and values by turns: w.Log(step, "loss", 0.5, "lengths", []float64{311, 87}). A value is a number, a
// bool, a slice of numbers, a Weighted or a Summary.
func (w *Writer) Log(step int64, namesAndValues ...any) {
	w.observe(step, nil, namesAndValues)
}

// LogWeighted is Log with a weight of all values, such as the number of tokens that a mean was taken over.
func (w *Writer) LogWeighted(step int64, weight float64, namesAndValues ...any) {
	w.observe(step, &weight, namesAndValues)
}

// Span is something under way.
type Span struct {
	w     *Writer
	step  int64
	name  string
	lane  string
	began time.Time
}

// Span times what happens until End.
func (w *Writer) Span(step int64, name string) *Span {
	return &Span{w, step, name, lane(), time.Now()}
}

// Step says that the span ends in a later step than it began in.
func (s *Span) Step(step int64) { s.step = step }

// End writes the span; err, if there is one, is what ended it.
func (s *Span) End(err error) {
	failure := ""
	if err != nil {
		failure = fmt.Sprintf("%T", err)
	}
	s.w.span(s.step, s.name, s.lane, s.began, time.Since(s.began), failure)
}

// RecordSpan writes a span that was timed otherwise; failure names the error that ended it, if one did.
func (w *Writer) RecordSpan(step int64, name string, began time.Time, took time.Duration, failure string) {
	w.span(step, name, lane(), began, took, failure)
}

// Event writes that something happened, with names and values by turns: w.Event(step, "weights_pushed", "bytes", 123). A
// value is whatever encoding/json can write.
func (w *Writer) Event(step int64, name string, attrs ...any) {
	if !w.takes("event", step) {
		return
	}
	if err := usableName(name); err != nil {
		w.refuse("event", err.Error())
		return
	}
	line := appendString(append(head("event", time.Now(), step), `,"name":`...), name)
	w.finish(line, "attrs", attrs, step)
}

// Sample writes a row of a table, with a score (NoScore: none), and columns as Event has attributes.
func (w *Writer) Sample(step int64, table string, score float64, row ...any) {
	if !w.takes("sample", step) {
		return
	}
	if err := usableName(table); err != nil {
		w.refuse("sample", err.Error())
		return
	}
	line := appendString(append(head("sample", time.Now(), step), `,"table":`...), table)
	if !math.IsNaN(score) {
		line = appendFloat(append(line, `,"score":`...), score)
	}
	line = appendFloat(append(line, `,"pri":`...), rand.Float64())
	w.finish(line, "row", row, step)
}

// Config notes what was set, such as hyper-parameters, with names and values by turns: w.Config("lr", 1e-6, "model",
// map[string]any{"layers": 24}). A value is whatever encoding/json can write. A later call updates by name, in objects too.
// Secrets are left out: texts under names such as api_key, and those that look like keys of known services.
func (w *Writer) Config(namesAndValues ...any) { w.note("config", namesAndValues) }

// Summary notes results, as Config notes what was set.
func (w *Writer) Summary(namesAndValues ...any) { w.note("summary", namesAndValues) }

// Run notes other members of section 5.8 of SPEC.md by their names: the texts name, notes, group, project, entity and
// job_type, tags ([]string), exit_code (an integer in -255..255), facts (an object).
func (w *Writer) Run(namesAndValues ...any) { w.note("", namesAndValues) }

// Barrier says that this process is done with all steps up to step. The lines so far are written soon.
func (w *Writer) Barrier(step int64) { w.mark("barrier", step) }

// Rollback says that this process went back, to do step again.
func (w *Writer) Rollback(step int64) { w.mark("rollback", step) }

// Flush waits until all lines so far are in the file, at most 5 s, and says whether they are.
func (w *Writer) Flush() bool {
	if w == nil {
		return true
	}
	timeout := time.NewTimer(closeWithin)
	defer timeout.Stop()
	done := make(chan struct{})
	select {
	case w.flushes <- done:
	case <-w.ended:
		return w.written
	case <-timeout.C:
		return false
	}
	select {
	case <-done:
		return true
	case <-w.ended:
		return w.written
	case <-timeout.C:
		return false
	}
}

// Close writes what is left and ends the file, in at most 5 s, and says whether all was written. os.Exit does not run
// deferred calls: there call it before.
func (w *Writer) Close() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	if !w.closed {
		line := fmt.Appendf(nil, "{\"kind\":\"close\",\"t\":%.3f,\"reason\":\"exit\"}\n", unix(time.Now()))
		w.add(line, NoStep, reserve)
		w.closed = true
		w.deadline = time.Now().Add(closeWithin)
		close(w.closing)
	}
	w.mu.Unlock()
	all := false
	select {
	case <-w.ended:
		all = w.written
	case <-time.After(closeWithin):
	}
	w.mu.Lock()
	saying := w.saying
	w.saying = nil
	w.mu.Unlock()
	patience := time.After(sayWithin)
	for _, said := range saying {
		select {
		case <-said:
		case <-patience:
			return all
		}
	}
	return all
}

// takes says whether there is a file, and whether step is one.
func (w *Writer) takes(call string, step int64) bool {
	if w == nil {
		return false
	}
	if step < NoStep || step >= stepsEnd {
		w.refuse(call, fmt.Sprintf("step %d is not in 0..2^53", step))
		return false
	}
	return true
}

func (w *Writer) mark(kind string, step int64) {
	if !w.takes(kind, step) {
		return
	}
	if step == NoStep {
		w.refuse(kind, "it needs a step")
		return
	}
	w.reach(kind, step)
	line := append(head(kind, time.Now(), step), "}\n"...)
	w.mu.Lock()
	w.add(line, step, reserve)
	w.mu.Unlock()
	w.rouse()
}

// reach notes a call for this step, and tells of one that does not follow what came before.
func (w *Writer) reach(call string, step int64) {
	if step == NoStep {
		return
	}
	topic, message := "", ""
	w.mu.Lock()
	switch promised, newest := w.promised, max(w.logged, w.at); {
	case call == "log":
		if promised > 0 && step+1 == promised && w.at == promised+1 && w.logged <= promised {
			topic, message = "after the barrier", fmt.Sprintf("log(…, step=%d) comes right after barrier(%d): nothing is lost, but a row of "+
				"a step may appear without it and be revised later. Call barrier once nothing more of its step will come", step, step)
		}
		w.at, w.logged = max(w.at, step+1), step+1
	case call == "barrier":
		if step+1 < promised {
			topic, message = "back", fmt.Sprintf("barrier(%d) goes back behind barrier(%d): call rollback(%d) first if the job resumed "+
				"from an older checkpoint", step, promised-1, step)
		}
		w.promised, w.at = max(promised, step+1), step+2
	default:
		if newest > 0 && newest < step { // the checkpoint of step n may be the one from which step n + 1 begins
			topic, message = "forward", fmt.Sprintf("rollback(%d) goes forward: the step of this process is %d. It is carried out. A "+
				"rollback names the step of the checkpoint that the job went back to", step, newest-1)
		}
		w.promised, w.at = step, step+1
	}
	w.mu.Unlock()
	if message != "" {
		w.tell(topic, call, message)
	}
}

func (w *Writer) span(step int64, name, lane string, began time.Time, took time.Duration, failure string) {
	if !w.takes("span", step) {
		return
	}
	name = firstChars(cmp.Or(name, "unnamed"), longestSpan)
	line := appendString(append(head("span", began, step), `,"name":`...), name)
	line = appendFloat(append(line, `,"dur":`...), min(max(took.Seconds(), 0), 1e9))
	line = appendString(append(line, `,"lane":`...), lane)
	if failure != "" {
		line = appendString(append(line, `,"err":`...), firstChars(failure, longestName))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(append(line, "}\n"...), step, 0)
}

func (w *Writer) observe(step int64, weight *float64, namesAndValues []any) {
	if !w.takes("log", step) {
		return
	}
	w.reach("log", step)
	t := time.Now()
	packed := packer{step: step}
	packed.head = fmt.Appendf(nil, `{"t":%.3f,"m":{`, unix(t))
	if step != NoStep {
		packed.head = fmt.Appendf(nil, `{"t":%.3f,"step":%d,"m":{`, unix(t), step)
	}
	packed.begin()
	for pair := range slices.Chunk(namesAndValues, 2) {
		name, isName := pair[0].(string)
		if !isName || len(pair) < 2 {
			w.tell("log", "log", "names and values by turns are wanted: the rest of the call is left out")
			break
		}
		pieces, err := observations(pair[1], weight)
		if bad := usableName(name); bad != nil {
			err = bad
		}
		if err != nil {
			w.tell("value "+shown(name), "value", err.Error())
			continue
		}
		for _, piece := range pieces {
			packed.put(name, piece)
		}
	}
	packed.end()
	w.mu.Lock()
	for _, line := range packed.lines {
		w.add(line, step, 0)
	}
	full := w.buffer.size > wakeAt
	w.mu.Unlock()
	if full {
		w.rouse()
	}
}

// finish adds a record of which only attrs or row is missing.
func (w *Writer) finish(line []byte, member string, namesAndValues []any, step int64) {
	var fields []field
	for pair := range slices.Chunk(namesAndValues, 2) {
		name, isName := pair[0].(string)
		if !isName || len(pair) < 2 {
			w.tell(member, member, "names and values by turns are wanted: the rest of the call is left out")
			break
		}
		one, err := encoded(name, pair[1])
		if err != nil {
			w.tell(member+" "+shown(name), member, err.Error())
			continue
		}
		if i := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); i >= 0 {
			fields[i] = one
		} else {
			fields = append(fields, one)
		}
	}
	members, cut, err := object(fields, lineLimit-len(line)-40)
	if err != nil {
		w.refuse(member, err.Error())
		return
	}
	line = append(fmt.Appendf(line, `,"%s":`, member), members...)
	if cut != nil {
		line = append(append(line, `,"cut":`...), cut...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(append(line, "}\n"...), step, 0)
}

// add needs the lock.
func (w *Writer) add(line []byte, step int64, more int) {
	if !w.closed {
		if w.owed {
			again := w.notedLines()
			if w.buffer.size+len(again)+len(line)+400 <= capacity+reserve {
				w.owed = false
				for _, one := range w.noted {
					w.buffer.add(one.line, NoStep, reserve)
				}
			}
		}
		w.buffer.add(line, step, more)
	}
}

func (w *Writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // it is roused already
	}
}

// tell says a thing the first time, in the file and on stderr.
func (w *Writer) tell(topic, where, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told[topic] || len(w.told) >= mostTold {
		return
	}
	w.told[topic] = true
	if topic != where {
		message = topic + ": " + message
	}
	line := appendString(append(head("event", time.Now(), NoStep), `,"name":"rlship_error","attrs":{"where":`...), where)
	line = append(appendString(append(line, `,"error":`...), message), "}}\n"...)
	w.add(line, NoStep, 0)
	w.saying = append(w.saying, say(message))
}

// refuse counts a line that cannot be made, and tells it once for each kind of call.
func (w *Writer) refuse(call, why string) {
	w.tell(call, call, call+": "+why)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buffer.dropped.add(NoStep)
}

// say writes one line to stderr, from a goroutine of its own: a pipe may have no reader. Past os.Stderr, which ends the
// program where the pipe is closed. The channel is closed after it.
func say(message string) <-chan struct{} {
	blank := func(c rune) rune {
		if unicode.IsControl(c) { // names may hold what moves the cursor
			return ' '
		}
		return c
	}
	text := strings.Map(blank, strings.ToValidUTF8(firstChars(message, 600), "?"))
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = syscall.Write(syscall.Stderr, fmt.Appendf(nil, "rlship: %s\n", text))
	}()
	return said
}

// lane names this goroutine. Spans of one lane nest in time, and those of several goroutines do not; the runtime tells
// which one this is only at the head of a stack trace.
func lane() string {
	var trace [64]byte
	text, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte(" ["))
	if len(text) == 0 || string(text) == "goroutine 1" {
		return "main"
	}
	return string(text)
}

// --- The ledger ---

const (
	mostSamples = 1 << 21 // of a group: up to here the sums of a digest are exact
	longestKey  = 200     // characters
	mostFields  = 32
)

// Group is what a group of samples is at one hop. What is not set is not recorded.
type Group struct {
	N         int       // how many samples; 0: as many as the slices below have
	Tokens    [][]int32 // of each sample, without padding
	Tokens64  [][]int64 // the same, where tokens do not fit in 32 bits
	Mask      [][]byte  // for each token, whether it counts in the loss
	Reward    []float64 // one for each sample
	Advantage []float64 // one for each sample
	Sample    []string  // names of the samples; nil: they are known by their tokens
	Fields    map[string][][]float64
	Response  *int64  // tokens that the model generated
	Version   []int64 // of the weights: the least and the greatest count
	Part      []int64 // i and k: these are the samples of part i of k
	Retry     int64   // the number of the dispatch, from 0
	Passes    int64   // how often the step trains on the group; 0 is 1
	Why       string  // why the group was dropped
	BF16      bool    // round numbers to bfloat16
}

// Ledger records what a group of samples is at one hop of its way: generated, rewarded, dropped, trained, or a name of your
// own. The key is the group's, unique for each time that it is generated. Of all keys a share is kept (RLSHIP_LEDGER_SHARE,
// 1/8), the same in every process.
func (w *Writer) Ledger(step int64, hop, key string, group Group) {
	if !w.takes("ledger", step) || !keepsKey(key, w.share) {
		return
	}
	members, err := group.members()
	if err == nil {
		err = usableName(hop)
	}
	if err == nil && (key == "" || utf8.RuneCountInString(key) > longestKey) {
		err = fmt.Errorf("a key has %d characters, 1 to %d are allowed", utf8.RuneCountInString(key), longestKey)
	}
	if err != nil {
		w.refuse("ledger", err.Error())
		return
	}
	w.enter(step, hop, key, members)
}

// Weights records which weights a version has, on both sides of a weight sync; fingerprint "" says nothing of them.
func (w *Writer) Weights(step int64, version int64, fingerprint string) {
	if !w.takes("weights", step) {
		return
	}
	if version < 0 || version >= stepsEnd {
		w.refuse("weights", fmt.Sprintf("version %d is not in 0..2^53", version))
		return
	}
	members := fmt.Appendf(nil, `,"n":0,"version":[%d,%d]`, version, version)
	if fingerprint != "" {
		members = appendString(append(members, `,"fingerprint":`...), firstChars(fingerprint, longestKey))
	}
	w.enter(step, "weights", strconv.FormatInt(version, 10), members)
}

func (w *Writer) enter(step int64, hop, key string, members []byte) {
	line := appendString(append(head("ledger", time.Now(), step), `,"hop":`...), hop)
	line = append(appendString(append(line, `,"key":`...), key), members...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(append(line, "}\n"...), step, 0)
}

// members are those of the record behind its key.
func (g *Group) members() ([]byte, error) {
	n, err := g.count()
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, `,"n":%d`, n)
	digests, by := g.digests(n)
	if digests != nil {
		if by != "" {
			line = fmt.Appendf(line, `,"by":"%s"`, by)
		}
		line = append(append(append(line, `,"d":{`...), bytes.Join(digests, []byte(","))...), '}')
		if g.BF16 {
			line = append(line, `,"precision":"bf16"`...)
		}
	}
	line = g.sums(line)
	for name, values := range map[string][]int64{"version": g.Version, "part": g.Part} {
		if values == nil {
			continue
		}
		low, high := slices.Min(values), slices.Max(values)
		if low < 0 || high >= stepsEnd || (name == "part" && (len(values) != 2 || values[0] >= values[1])) {
			return nil, fmt.Errorf("%s %v cannot be used", name, values)
		}
		line = fmt.Appendf(line, `,"%s":[%d,%d]`, name, low, high)
	}
	for name, value := range map[string]*int64{"response": g.Response, "try": &g.Retry, "passes": &g.Passes} {
		if value == nil || (*value == 0 && name != "response") {
			continue
		}
		if *value < 0 || *value >= stepsEnd {
			return nil, fmt.Errorf("%s %d is not in 0..2^53", name, *value)
		}
		line = fmt.Appendf(line, `,"%s":%d`, name, *value)
	}
	if g.Why != "" {
		line = appendString(append(line, `,"why":`...), firstChars(g.Why, longestKey))
	}
	return line, nil
}

// count is how many samples there are; every slice has to agree.
func (g *Group) count() (int, error) {
	lengths := map[string]int{}
	for name, rows := range g.Fields {
		lengths[name] = len(rows)
	}
	for name, length := range map[string]int{
		"Tokens": len(g.Tokens), "Tokens64": len(g.Tokens64), "Mask": len(g.Mask), "Reward": len(g.Reward),
		"Advantage": len(g.Advantage), "Sample": len(g.Sample),
	} {
		if length > 0 {
			lengths[name] = length
		}
	}
	n := g.N
	for _, length := range lengths {
		n = max(n, length)
	}
	for name, length := range lengths {
		if length != n {
			return 0, fmt.Errorf("%s has values of %d samples, and the group has %d", name, length, n)
		}
	}
	if n < 0 || n > mostSamples || len(lengths) > mostFields {
		return 0, fmt.Errorf("%d samples and %d fields: 0 to %d and at most %d are allowed", n, len(lengths), mostSamples, mostFields)
	}
	return n, nil
}

// digests are the members of d, and what the samples are known by.
func (g *Group) digests(n int) (members [][]byte, by string) {
	ids := make([]uint32, n)
	add := func(name string, crcs []uint32) {
		low, high := digest(name, ids, crcs)
		members = append(members, fmt.Appendf(appendString(nil, name), ":[%d,%d]", low, high))
	}
	var tokens []uint32
	for _, row := range g.Tokens {
		tokens = append(tokens, crcOf32(row))
	}
	for _, row := range g.Tokens64 {
		tokens = append(tokens, crcOf64(row))
	}
	if tokens != nil {
		by = "tokens"
		copy(ids, tokens)
	}
	if g.Sample != nil {
		by = "sample"
		for i, name := range g.Sample {
			ids[i] = crc32.ChecksumIEEE([]byte(strings.ToValidUTF8(name, "\ufffd")))
		}
		add("sample", ids)
	}
	if tokens != nil {
		add("tokens", tokens)
	}
	if g.Mask != nil {
		crcs := make([]uint32, 0, n)
		for _, row := range g.Mask {
			crcs = append(crcs, crcOfMask(row))
		}
		add("mask", crcs)
	}
	for name, values := range map[string][]float64{"reward": g.Reward, "advantage": g.Advantage} {
		if values != nil {
			crcs := make([]uint32, 0, n)
			for _, x := range values {
				crcs = append(crcs, crcOfNumbers([]float64{x}, g.BF16))
			}
			add(name, crcs)
		}
	}
	for name, rows := range g.Fields {
		crcs := make([]uint32, 0, n)
		for _, row := range rows {
			crcs = append(crcs, crcOfNumbers(row, g.BF16))
		}
		add(name, crcs)
	}
	return members, by
}

// sums are the members that hold sums: of rewards, of advantages, of the mask.
func (g *Group) sums(line []byte) []byte {
	product := func(a, b []float64, mean float64) float64 {
		each := make([]float64, len(a))
		for i := range a {
			each[i] = (a[i] - mean) * b[i]
		}
		return sum(each)
	}
	rewards := g.Reward != nil && isFinite(g.Reward)
	if rewards {
		line = appendFloat(append(line, `,"reward":[`...), sum(g.Reward))
		line = append(appendFloat(append(line, ','), product(g.Reward, g.Reward, 0)), ']')
	}
	if g.Advantage != nil && isFinite(g.Advantage) {
		line = appendFloat(append(line, `,"advantage":[`...), sum(g.Advantage))
		line = appendFloat(append(line, ','), product(g.Advantage, g.Advantage, 0))
		if rewards {
			mean := sum(g.Reward) / float64(len(g.Reward))
			line = appendFloat(append(line, ','), product(g.Reward, g.Advantage, mean))
		}
		line = append(line, ']')
	}
	if g.Mask != nil {
		var counted, tokens, empty int
		for i, row := range g.Mask {
			own := len(row) - bytes.Count(row, []byte{0})
			counted += own
			if own == 0 {
				empty++
			}
			switch {
			case g.Tokens != nil:
				tokens += len(g.Tokens[i])
			case g.Tokens64 != nil:
				tokens += len(g.Tokens64[i])
			default:
				tokens += len(row)
			}
		}
		line = fmt.Appendf(line, `,"mask":[%d,%d,%d]`, counted, tokens, empty)
	}
	return line
}

func isFinite(values []float64) bool {
	return !slices.ContainsFunc(values, func(x float64) bool { return math.IsNaN(x*x) || math.IsInf(x*x, 0) })
}

// sum holds what additions lose in a second sum.
func sum(values []float64) float64 {
	var total, lost float64
	for _, x := range values {
		next := total + x
		if math.Abs(total) >= math.Abs(x) {
			lost += (total - next) + x
		} else {
			lost += (x - next) + total
		}
		total = next
	}
	return total + lost
}

func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// keepsKey says whether a share of all keys has this one. Every process decides alike.
func keepsKey(key string, share float64) bool {
	return float64(mix64(uint64(crc32.ChecksumIEEE([]byte(key))))>>11) < share*(1<<53)
}

// digest is that of a field over samples, given the CRCs of their ids and of their canonical values.
func digest(name string, ids, values []uint32) (low, high uint64) {
	for i, id := range ids {
		h := mix64(uint64(id)<<32 | uint64(crc32.Update(values[i], crc32.IEEETable, []byte(name))))
		low += h & math.MaxUint32
		high += h >> 32
	}
	return low, high
}

func crcOf32(row []int32) uint32 {
	data := make([]byte, 0, 4*len(row))
	for _, x := range row {
		data = binary.LittleEndian.AppendUint32(data, uint32(x))
	}
	return crc32.ChecksumIEEE(data)
}

func crcOf64(row []int64) uint32 {
	small := !slices.ContainsFunc(row, func(x int64) bool { return x != int64(int32(x)) })
	data := make([]byte, 0, 8*len(row))
	for _, x := range row {
		if small {
			data = binary.LittleEndian.AppendUint32(data, uint32(x))
		} else {
			data = binary.LittleEndian.AppendUint64(data, uint64(x))
		}
	}
	return crc32.ChecksumIEEE(data)
}

func crcOfMask(row []byte) uint32 {
	data := make([]byte, len(row))
	for i, x := range row {
		if x != 0 {
			data[i] = 1
		}
	}
	return crc32.ChecksumIEEE(data)
}

// crcOfNumbers rounds to float32, or to bfloat16: one NaN, and no negative zero.
func crcOfNumbers(row []float64, bf16 bool) uint32 {
	data := make([]byte, 0, 4*len(row))
	for _, x := range row {
		bits := math.Float32bits(float32(x))
		if math.IsNaN(x) {
			bits = 0x7fc00000
		} else if bf16 {
			bits += 0x7fff + bits>>16&1
		}
		if bf16 {
			upper := uint16(bits >> 16)
			if upper == 0x8000 {
				upper = 0
			}
			data = binary.LittleEndian.AppendUint16(data, upper)
			continue
		}
		if bits == 0x80000000 {
			bits = 0
		}
		data = binary.LittleEndian.AppendUint32(data, bits)
	}
	return crc32.ChecksumIEEE(data)
}

// ledgerShare is that of the environment.
func ledgerShare(tell func(topic, where, message string)) float64 {
	given := os.Getenv("RLSHIP_LEDGER_SHARE")
	if given == "" {
		return 1.0 / 8
	}
	share, err := strconv.ParseFloat(given, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		tell("RLSHIP_LEDGER_SHARE", "init", shown(given)+" is not a number from 0 to 1; an eighth of the groups is recorded")
		return 1.0 / 8
	}
	return share
}

// --- Values to lines ---

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// head is the beginning of a record, without its closing brace.
func head(kind string, t time.Time, step int64) []byte {
	line := fmt.Appendf(make([]byte, 0, 192), `{"kind":"%s","t":%.6f`, kind, unix(t))
	if step != NoStep {
		line = strconv.AppendInt(append(line, `,"step":`...), step, 10)
	}
	return line
}

// appendString escapes no more than JSON asks for, unlike encoding/json; what is no UTF-8 becomes U+FFFD.
func appendString(line []byte, text string) []byte {
	line = append(line, '"')
	for _, c := range text {
		line = appendRune(line, c)
	}
	return append(line, '"')
}

func appendRune(line []byte, c rune) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(line, '\\', byte(c))
	case c == '\n':
		return append(line, `\n`...)
	case c == '\r':
		return append(line, `\r`...)
	case c == '\t':
		return append(line, `\t`...)
	case c < ' ':
		return fmt.Appendf(line, `\u%04x`, c)
	}
	return utf8.AppendRune(line, c)
}

// appendFloat writes the shortest decimal that reads back as x, always with a point or an exponent: -0 would be an
// integer.
func appendFloat(line []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(line, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(line, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(line, `"-Infinity"`...)
	}
	if size := math.Abs(x); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.AppendFloat(line, x, 'e', -1, 64)
	}
	start := len(line)
	line = strconv.AppendFloat(line, x, 'f', -1, 64)
	if bytes.IndexByte(line[start:], '.') < 0 {
		line = append(line, ".0"...)
	}
	return line
}

func firstChars(text string, most int) string {
	if len(text) <= most {
		return text
	}
	count := 0
	for i := range text {
		if count == most {
			return text[:i]
		}
		count++
	}
	return text
}

// shown is as much of a name as a message shows.
func shown(name string) string { return strconv.Quote(firstChars(name, 200)) }

func usableName(name string) error {
	if name == "" {
		return errors.New("the name is empty: it is left out")
	}
	// No more characters than bytes: most names need not be counted.
	if len(name) > longestName && utf8.RuneCountInString(name) > longestName {
		return fmt.Errorf("the name has more than %d characters: it is left out", longestName)
	}
	return nil
}

var reductions = []string{"mean", "sum", "min", "max", "first", "last", "std", "count", "p50", "p90", "p95", "p99", "hist",
	"rate", "sum_last"}

func usableReduction(name string) bool {
	return slices.Contains(reductions, name) || strings.Contains(name, ".") && utf8.RuneCountInString(name) <= 100
}

// number appends a number that is neither in a slice nor weighted; false if value is not a number.
func number(line []byte, value reflect.Value) ([]byte, bool) {
	switch {
	case value.Kind() == reflect.Bool:
		if value.Bool() {
			return append(line, '1'), true
		}
		return append(line, '0'), true
	case value.CanFloat():
		return appendFloat(line, value.Float()), true
	case value.CanInt():
		return strconv.AppendInt(line, value.Int(), 10), true
	case value.CanUint():
		return strconv.AppendUint(line, value.Uint(), 10), true
	}
	return line, false
}

// observations is the value in JSON: more than one piece only of a slice that would not fit in a line.
func observations(given any, weight *float64) ([][]byte, error) {
	weights := []float64(nil)
	switch own := given.(type) {
	case float64: // what most values are
		if weight == nil {
			return [][]byte{appendFloat(make([]byte, 0, 24), own)}, nil
		}
	case Summary:
		if weight != nil {
			return nil, errors.New("a summary carries weights of its own: log it without a weight")
		}
		return summarised(own)
	case Weighted:
		if weight != nil {
			return nil, errors.New("it carries weights of its own: log it without a weight")
		}
		if len(own.V) != len(own.W) {
			return nil, fmt.Errorf("it has %d values and %d weights", len(own.V), len(own.W))
		}
		given, weights = own.V, own.W
		if weights == nil {
			weights = []float64{}
		}
	}
	value := reflect.ValueOf(given)
	var values [][]byte
	if kind := value.Kind(); kind == reflect.Slice || kind == reflect.Array {
		if value.Len() > mostElements {
			return nil, fmt.Errorf("it has %d elements, %d are allowed", value.Len(), mostElements)
		}
		for i := range value.Len() {
			item, isNumber := number(nil, value.Index(i))
			if !isNumber {
				return nil, fmt.Errorf("a %T is no metric: numbers, bools, slices of them, Weighted and Summary are", given)
			}
			values = append(values, item)
		}
		if len(values) == 0 {
			return [][]byte{[]byte("[]")}, nil
		}
	} else {
		one, isNumber := number(nil, value)
		if !isNumber {
			return nil, fmt.Errorf("a %T is no metric: numbers, bools, slices of them, Weighted and Summary are", given)
		}
		if weight == nil {
			return [][]byte{one}, nil
		}
		values = [][]byte{one}
	}
	if weight != nil {
		weights = slices.Repeat([]float64{*weight}, len(values))
	}
	if weights == nil {
		var pieces [][]byte
		for some := range slices.Chunk(values, elementsAtOnce) {
			pieces = append(pieces, array(some))
		}
		return pieces, nil
	}
	numbers := make([][]byte, len(weights))
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("its weight %v is not a finite number of 0 or more", w)
		}
		numbers[i] = appendFloat(nil, w)
	}
	var pieces [][]byte
	for from := 0; from < len(values); from += elementsAtOnce {
		to := min(from+elementsAtOnce, len(values))
		pieces = append(pieces, fmt.Appendf(nil, `{"v":%s,"w":%s}`, array(values[from:to]), array(numbers[from:to])))
	}
	return pieces, nil
}

func array(items [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]"))
}

func summarised(summary Summary) ([][]byte, error) {
	if summary.N < 0 || summary.N >= stepsEnd {
		return nil, fmt.Errorf("a summary of %d observations: 0..2^53 are allowed", summary.N)
	}
	out := fmt.Appendf(nil, `{"n":%d`, summary.N)
	known := []string{"w", "sum", "min", "max", "first", "last", "m2"}
	for name, x := range summary.Of {
		if !slices.Contains(known, name) || math.IsNaN(x) || math.IsInf(x, 0) || (name == "w" || name == "m2") && x < 0 {
			return nil, fmt.Errorf("a summary with %.40q = %v: finite %s are allowed", name, x, strings.Join(known, ", "))
		}
		out = appendFloat(fmt.Appendf(out, `,"%s":`, name), x)
	}
	return [][]byte{append(out, '}')}, nil
}

// packer makes metrics records: one, unless it would be too long or hold a name twice.
type packer struct {
	step  int64
	head  []byte
	line  []byte
	names map[string]bool
	lines [][]byte
}

func (p *packer) begin() {
	p.line = append(make([]byte, 0, 256), p.head...)
	p.names = map[string]bool{}
}

func (p *packer) put(name string, value []byte) {
	// A name takes at most six bytes for each of its own.
	most := len(name)*6 + len(value) + 8
	if p.names[name] || len(p.names) > 0 && len(p.line)+most > lineLimit {
		p.end()
		p.begin()
	}
	if len(p.names) > 0 {
		p.line = append(p.line, ',')
	}
	p.names[name] = true
	p.line = append(append(appendString(p.line, name), ':'), value...)
}

func (p *packer) end() { p.lines = append(p.lines, append(p.line, "}}\n"...)) }

// field is an attribute of an event or a column of a sample, in JSON.
type field struct {
	name   string
	value  []byte
	text   string // what to take the beginning of, where it does not fit
	length int    // of what can be cut, in characters or elements; -1: it cannot
}

func encoded(name string, value any) (f field, err error) {
	// A Marshaler is the program's, or another library's, and may do anything.
	defer func() {
		if trouble := recover(); trouble != nil {
			err = fmt.Errorf("writing a %T as JSON panicked: %v", value, trouble)
		}
	}()
	f = field{name: name, length: -1}
	if err = usableName(name); err != nil {
		return f, err
	}
	if text, isText := value.(string); isText {
		f.value, f.text, f.length = appendString(nil, text), strings.ToValidUTF8(text, "\ufffd"), utf8.RuneCountInString(text)
		return f, nil
	}
	reflected := reflect.ValueOf(value)
	if reflected.CanFloat() { // which encoding/json refuses if it is not finite
		f.value = appendFloat(nil, reflected.Float())
		return f, nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err = encoder.Encode(value); err != nil {
		return f, err
	}
	f.value = bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	switch reflected.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		f.text, f.length = string(f.value), reflected.Len()
	case reflect.Struct:
		f.text, f.length = string(f.value), reflected.NumField()
	case reflect.String:
		f.text, f.length = reflected.String(), utf8.RuneCountInString(reflected.String())
	}
	return f, nil
}

// object is {…} of the fields in at most room bytes; with it {…} of the lengths that those had which were cut, if any was.
func object(fields []field, room int) (members, cut []byte, err error) {
	keys := make([][]byte, len(fields))
	var sizes []int // of what can be cut
	left := room - 2
	for i, f := range fields {
		keys[i] = append(appendString(nil, f.name), ':')
		if f.length >= 0 {
			sizes = append(sizes, len(f.value))
			left -= 2*len(keys[i]) + 30 // once more in cut, with a length
		} else {
			left -= len(keys[i]) + len(f.value) + 1
		}
	}
	if left < 0 {
		return nil, nil, errors.New("it does not fit in a line of 1 MiB")
	}
	// The longest are cut to one length, such that all fit; the others stay whole.
	slices.Sort(sizes)
	most := math.MaxInt
	for i, size := range sizes {
		if share := left / (len(sizes) - i); size > share {
			most = share
			break
		}
		left -= size
	}
	members = []byte("{")
	for i, f := range fields {
		if i > 0 {
			members = append(members, ',')
		}
		members = append(members, keys[i]...)
		if f.length < 0 || len(f.value) <= most {
			members = append(members, f.value...)
			continue
		}
		members = append(members, beginning(f.text, most)...)
		if cut == nil {
			cut = []byte("{")
		} else {
			cut = append(cut, ',')
		}
		cut = strconv.AppendInt(append(cut, keys[i]...), int64(f.length), 10)
	}
	if cut != nil {
		cut = append(cut, '}')
	}
	return append(members, '}'), cut, nil
}

// beginning is that of a text in JSON, in at most so many bytes.
func beginning(text string, most int) []byte {
	out := []byte{'"'}
	for _, c := range text {
		before := len(out)
		if out = appendRune(out, c); len(out)+1 > most {
			out = out[:before]
			break
		}
	}
	return append(out, '"')
}

// --- The buffer between the goroutines that log and the one that writes ---

// tally counts lines that were dropped, or may be lost, and knows of which steps they were.
type tally struct{ stepped, first, last, unstepped int64 }

func (t *tally) add(step int64) {
	if step == NoStep {
		t.unstepped++
	} else {
		t.merge(tally{stepped: 1, first: step, last: step})
	}
}

func (t *tally) merge(other tally) {
	if other.stepped > 0 {
		if t.stepped == 0 || other.first < t.first {
			t.first = other.first
		}
		t.last = max(t.last, other.last)
		t.stepped += other.stepped
	}
	t.unstepped += other.unstepped
}

// take leaves nothing.
func (t *tally) take() tally {
	taken := *t
	*t = tally{}
	return taken
}

// lines are the gap records that tell it.
func (t tally) lines() (out []byte) {
	now := unix(time.Now())
	if t.stepped > 0 {
		out = fmt.Appendf(out, "{\"kind\":\"gap\",\"n\":%d,\"from\":%d,\"to\":%d,\"t\":%.3f}\n", t.stepped, t.first, t.last, now)
	}
	if t.unstepped > 0 {
		out = fmt.Appendf(out, "{\"kind\":\"gap\",\"n\":%d,\"t\":%.3f}\n", t.unstepped, now)
	}
	return out
}

// lines are whole ones: data, and for each where it ends, and its step.
type lines struct {
	data []byte
	ends []lineEnd
}

type lineEnd struct {
	at   int
	step int64
}

func (l *lines) push(line []byte, step int64) {
	l.data = append(l.data, line...)
	l.ends = append(l.ends, lineEnd{len(l.data), step})
}

// whole is how many lines end at or before a byte.
func (l *lines) whole(at int) int {
	n, _ := slices.BinarySearchFunc(l.ends, at+1, func(end lineEnd, at int) int { return cmp.Compare(end.at, at) })
	return n
}

type buffer struct {
	waiting lines
	size    int // bytes that wait, and those taken that are not written yet
	dropped tally
}

// add takes a line that may use more bytes than the capacity, or counts it.
func (b *buffer) add(line []byte, step int64, more int) {
	if len(line) > lineLimit || !b.tellDropped(len(line), more) {
		b.dropped.add(step)
		return
	}
	b.size += len(line)
	b.waiting.push(line, step)
}

// tellDropped puts the gap records in, if they and so many bytes fit.
func (b *buffer) tellDropped(room, more int) bool {
	var gaps []byte
	if b.dropped != (tally{}) {
		gaps = b.dropped.lines()
	}
	if b.size+len(gaps)+room > capacity+more {
		return false
	}
	if gaps != nil {
		b.size += len(gaps)
		b.waiting.push(gaps, NoStep)
		b.dropped = tally{}
	}
	return true
}

func (b *buffer) empty() bool { return len(b.waiting.ends) == 0 && b.dropped == (tally{}) }

func (b *buffer) take() lines {
	b.tellDropped(0, reserve)
	taken := b.waiting
	b.waiting = lines{}
	return taken
}

type definition struct {
	name  string
	entry []byte
}

// definitions are define records of all that was defined, none near the limit of a line, and run records of all that was
// noted.
func (w *Writer) definitions() (out []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var line []byte
	for _, one := range w.defines {
		if len(line) > 0 && len(line)+len(one.entry) > defineLimit-64 {
			out = fmt.Appendf(out, "{\"kind\":\"define\",\"m\":{%s}}\n", line)
			line = line[:0]
		}
		if len(line) > 0 {
			line = append(line, ',')
		}
		line = append(line, one.entry...)
	}
	if len(line) > 0 {
		out = fmt.Appendf(out, "{\"kind\":\"define\",\"m\":{%s}}\n", line)
	}
	return append(out, w.notedLines()...)
}

// --- The run ---

// notedLine is a run record that a new file repeats. One that says the same names, and no object, takes its place.
type notedLine struct {
	names string
	line  []byte
}

func (w *Writer) notedLines() (out []byte) {
	for _, one := range w.noted {
		out = append(out, one.line...)
	}
	return out
}

// note adds run records of names and values. Without an object they are the record's own members.
func (w *Writer) note(object string, namesAndValues []any) {
	if w == nil {
		return
	}
	where := cmp.Or(object, "run")
	var fields []field
	var dropped []string
	for pair := range slices.Chunk(namesAndValues, 2) {
		name, isName := pair[0].(string)
		if !isName || len(pair) < 2 {
			w.tell(where, where, "names and values by turns are wanted: the rest of the call is left out")
			break
		}
		one, err := encoded(name, pair[1])
		if err == nil {
			one.value, err = bounded(one)
		}
		var paths []string
		if err == nil {
			one.value, paths = withoutSecrets(object, name, one.value)
		}
		if err == nil && object == "" && one.value != nil {
			err = usableMember(name, one.value)
		}
		if err != nil {
			w.tell(where+" "+shown(name), where, err.Error())
			continue
		}
		dropped = append(dropped, paths...)
		fields = slices.DeleteFunc(fields, func(f field) bool { return f.name == name })
		if one.value != nil {
			fields = append(fields, one)
		}
	}
	w.noteRecords(object, fields, dropped)
}

// noteRecords adds as many records as it takes for none to exceed a line. The last one names what was dropped.
func (w *Writer) noteRecords(object string, fields []field, dropped []string) {
	var members []byte
	var names strings.Builder
	joins := false
	put := func(dropped []string) {
		line := head("run", time.Now(), NoStep)
		switch {
		case len(members) == 0 && len(dropped) == 0:
			return
		case len(members) > 0 && object != "":
			line = fmt.Appendf(line, `,"%s":{%s}`, object, members[1:])
		default:
			line = append(line, members...)
		}
		for i, path := range dropped {
			if i == 0 {
				line = append(line, `,"dropped":[`...)
			} else {
				line = append(line, ',')
			}
			line = appendString(line, path)
		}
		if len(dropped) > 0 {
			line = append(line, ']')
		}
		w.noteLine(names.String(), joins, append(line, "}\n"...))
		members, joins = nil, false
		names.Reset()
	}
	for _, f := range fields {
		key := append(appendString([]byte{','}, f.name), ':')
		if len(members)+len(key)+len(f.value) > lineLimit-largestSetting/4 {
			put(nil)
		}
		members = append(append(members, key...), f.value...)
		names.WriteString(object)
		names.Write(key)
		joins = joins || bytes.IndexByte(f.value, '{') >= 0
	}
	put(dropped)
}

func (w *Writer) noteLine(names string, joins bool, line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !joins && names != "" {
		w.noted = slices.DeleteFunc(w.noted, func(one notedLine) bool { return one.names == names })
	} else {
		names = ""
	}
	if len(w.notedLines())+len(line) <= mostNoted {
		w.noted = append(w.noted, notedLine{names, line})
	}
	lost := w.buffer.dropped
	w.add(line, NoStep, reserve)
	w.owed = w.owed || w.buffer.dropped != lost && w.buffer.dropped != (tally{})
}

// bounded is the value of a field as long as a record takes it: of a text its beginning.
func bounded(f field) ([]byte, error) {
	if f.length > longestSetting && len(f.value) > 0 && f.value[0] == '"' {
		return appendString(nil, firstChars(f.text, longestSetting)), nil
	}
	if len(f.value) > largestSetting {
		return nil, fmt.Errorf("it has more than %d bytes: it is left out", largestSetting)
	}
	return f.value, nil
}

var memberForms = map[string]byte{"name": '"', "notes": '"', "group": '"', "project": '"', "entity": '"', "job_type": '"',
	"tags": '[', "dropped": '[', "config": '{', "summary": '{', "facts": '{'}

func usableMember(name string, value []byte) error {
	if name == "exit_code" {
		if code, err := strconv.Atoi(string(value)); err == nil && code >= -255 && code <= 255 {
			return nil
		}
		return errors.New("it is not an integer from -255 to 255: it is left out")
	}
	if form, known := memberForms[name]; !known || value[0] != form {
		return errors.New("it is no member of a run, or not of this type: it is left out")
	}
	return nil
}

// withoutSecrets is a value in JSON without the texts that are secrets, nil if it is one itself, and their dotted paths.
func withoutSecrets(object, name string, value []byte) ([]byte, []string) {
	if bytes.IndexByte(value, '"') < 0 {
		return value, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil {
		return value, nil
	}
	path := []string{name}
	if object != "" {
		path = []string{object, name}
	}
	kept, dropped := filtered(path, tree)
	if dropped == nil {
		return value, nil
	}
	if kept == nil {
		return nil, dropped
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(kept) != nil {
		return nil, dropped
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), dropped
}

func filtered(path []string, value any) (any, []string) {
	var dropped []string
	switch given := value.(type) {
	case string:
		if isSecret(path, given) {
			return nil, []string{strings.Join(path, ".")}
		}
	case map[string]any:
		for name, inner := range given {
			kept, paths := filtered(append(path[:len(path):len(path)], name), inner)
			if dropped = append(dropped, paths...); kept == nil && inner != nil {
				delete(given, name)
			} else {
				given[name] = kept
			}
		}
		slices.Sort(dropped)
	case []any:
		for i, inner := range given {
			kept, paths := filtered(append(path[:len(path):len(path)], strconv.Itoa(i)), inner)
			if dropped = append(dropped, paths...); kept == nil && inner != nil {
				kept = "***"
			}
			given[i] = kept
		}
	}
	return value, dropped
}

var (
	secretWords = []string{"password", "passwords", "passwd", "passphrase", "secret", "secrets", "credential", "credentials",
		"apikey", "apikeys", "accesskey", "privatekey", "authorization", "bearer"}
	// What a word may end with, if nothing divides it: dbpassword.
	secretEnds = []string{"password", "passwd", "passphrase", "secret", "secretkey", "apikey"}
	// What may be kept under a key, and whose key it is.
	beforeKey = []string{"api", "access", "private", "auth", "signing", "encryption", "ssh", "gpg", "pgp", "rsa", "tls", "ssl",
		"master", "deploy", "openai", "gemini", "google", "mistral", "cohere", "groq", "deepseek", "openrouter", "replicate",
		"wandb", "hf", "huggingface", "comet", "neptune", "github", "gitlab", "aws", "azure", "gcp", "stripe", "tavily",
		"serper", "pinecone", "langsmith"}
	// Whose password it is.
	accounts = []string{"db", "database", "sql", "mysql", "pg", "postgres", "mongo", "redis", "amqp", "rabbitmq", "smtp",
		"mail", "email", "ftp", "ssh", "http", "https", "proxy", "admin", "root", "user", "login", "auth", "ldap", "sudo"}
	forges = []string{"github", "gh", "gitlab", "git", "azure", "ado", "devops"}
	// The first ones begin no words of languages.
	keyPrefixes = []string{"hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "nvapi-", "xoxb-",
		"xoxp-", "wandb_v1_", "dckr_pat_", "sk_live_", "rk_live_", "gsk_", "AKIA", "ASIA", "AIza", "eyJ", "pypi-AgE", "npm_"}
)

const neverWords = 16

// isSecret says whether a text below these names is a secret; elements of arrays have their numbers as names.
func isSecret(path []string, text string) bool {
	last := ""
	for _, name := range path {
		if namesSecret(name) {
			return strings.TrimSpace(text) != ""
		}
		if strings.Trim(name, "0123456789") != "" {
			last = name
		}
	}
	return namesToken(last) && isToken(text) || hasSecret(text)
}

func namesSecret(name string) bool {
	words := wordsOf(name)
	for i, word := range words {
		ends := func(end string) bool { return strings.HasSuffix(word, end) }
		if slices.Contains(secretWords, word) || slices.ContainsFunc(secretEnds, ends) || i > 0 && pairSecret(words[i-1], word) {
			return true
		}
	}
	return false
}

func pairSecret(one, other string) bool {
	switch other {
	case "key", "keys":
		return slices.Contains(beforeKey, one)
	case "pass", "pwd":
		return slices.Contains(accounts, one)
	case "pat":
		return slices.Contains(forges, one)
	}
	return other == "word" && one == "pass"
}

func namesToken(name string) bool {
	words := wordsOf(name)
	return len(words) > 0 && words[len(words)-1] == "token"
}

// wordsOf a name, in lower case: divided by what is no letter or digit, and by the capitals of camelCase.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = nil
	}
	for i, c := range runes {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			end()
			continue
		}
		lowerNext := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if len(word) > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(word[len(word)-1]) || lowerNext) {
			end()
		}
		word = append(word, c)
	}
	end()
	return words
}

// isToken says whether a text may be an access token: not a special token of a tokenizer, which stands in brackets.
func isToken(text string) bool {
	special := strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") ||
		strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]")
	return !special && utf8.RuneCountInString(text) >= shortestToken && strings.IndexFunc(text, unicode.IsSpace) < 0
}

func betweenWords(c rune) bool {
	return unicode.IsSpace(c) || strings.ContainsRune("\"'`,;:=()[]{}<>|&?", c)
}

// hasSecret says whether a text looks like a secret, or has a part that does.
func hasSecret(text string) bool {
	for _, prefix := range keyPrefixes[:neverWords] {
		if strings.HasPrefix(text, prefix) && strings.IndexFunc(text, unicode.IsSpace) < 0 {
			return true
		}
	}
	words := strings.FieldsFunc(text, betweenWords)
	named := strings.Contains(strings.ToLower(text), "authorization")
	for i, word := range words {
		for _, prefix := range keyPrefixes {
			rest, found := strings.CutPrefix(word, prefix)
			others := "_-."
			if prefix == "npm_" { // npm_config_... is a setting
				others = ""
			}
			if found && len(rest) >= shortestToken && strings.Trim(rest,
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"+others) == "" {
				return true
			}
		}
		// A header such as `Authorization: Bearer x`.
		if i > 0 && strings.ToLower(words[i-1]) == "bearer" && (named || utf8.RuneCountInString(word) >= shortestToken) {
			return true
		}
	}
	if strings.Contains(text, "hooks.slack.com/services/") {
		return true
	}
	if strings.Contains(text, "-----BEGIN") && strings.Contains(text, "PRIVATE KEY-----") {
		return true
	}
	addresses := strings.Split(text, "://") // scheme://user:password@host, https://token@host
	for i, rest := range addresses[1:] {
		host, _, _ := strings.Cut(rest, "/")
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			user := host[:at]
			_, password, _ := strings.Cut(user, ":")
			ofWeb := strings.HasSuffix(addresses[i], "http") || strings.HasSuffix(addresses[i], "https")
			isLong := ofWeb && utf8.RuneCountInString(user) >= shortestToken
			if (password != "" || isLong) && strings.IndexFunc(user, unicode.IsSpace) < 0 {
				return true
			}
		}
	}
	parts := strings.Split(text, "=")
	for i, after := range parts[1:] {
		name := parts[i][strings.LastIndexFunc(parts[i], betweenWords)+1:]
		value := strings.TrimLeft(after, `'"`)
		if end := strings.IndexFunc(value, betweenWords); end >= 0 {
			value = value[:end]
		}
		if name != "" && value != "" && (namesSecret(name) || namesToken(name) && isToken(value)) {
			return true
		}
	}
	return false
}

// --- The goroutine that writes ---

func (w *Writer) run(file *lineFile, syncEvery time.Duration) {
	defer close(w.ended)
	var (
		knownNetwork, network bool
		failing               bool
		pause                 = backoff
		waiters               []chan struct{}
		lastLine              = time.Now()
		closing               = w.closing
		closed                bool
		// Ranks start together: a random phase keeps them from syncing together.
		nextSync = time.Now().Add(time.Duration(rand.Int64N(int64(syncEvery))))
	)
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	for {
		// While the disk fails, what was taken stays at hand, and the rest in the buffer.
		if !failing {
			w.mu.Lock()
			if w.buffer.empty() && time.Since(lastLine) >= beatEvery {
				w.add(fmt.Appendf(nil, "{\"kind\":\"beat\",\"t\":%.3f}\n", unix(time.Now())), NoStep, 0)
			}
			file.put(w.buffer.take())
			w.mu.Unlock()
		}
		wrote, err := file.writeOut()
		if wrote {
			lastLine = time.Now()
		}
		if err == nil {
			if !knownNetwork {
				knownNetwork, network = true, isNetwork(file.folder)
			}
			due := failing || closed || len(waiters) > 0 || !time.Now().Before(nextSync)
			if !network {
				file.safe()
			} else if file.unsynced && due {
				nextSync = time.Now().Add(syncEvery)
				err = file.sync()
			}
		}
		w.mu.Lock()
		w.buffer.size -= file.freed
		file.freed = 0
		through := closed && w.buffer.empty()
		w.mu.Unlock()

		wait := flushEvery
		switch {
		case err != nil:
			failing = true
			w.tell("cannot write to "+file.folder, "file", err.Error()+"; it goes on trying")
			most := backoffMost
			if file.inVain {
				most *= rarer
			}
			wait, pause = min(pause, most), min(pause*2, most)
		case failing:
			failing, pause, knownNetwork = false, backoff, false // what is mounted there may have changed
			continue
		default:
			for _, done := range waiters {
				close(done)
			}
			waiters = nil
			if through {
				w.written = true
				file.letGo()
				return
			}
		}
		if closed {
			if !time.Now().Before(w.deadline) {
				return
			}
			wait = min(wait, 50*time.Millisecond)
		}
		timer.Reset(wait)
		wake := w.wake
		if failing {
			wake = nil // or each barrier would be one more attempt
		}
	waiting:
		for {
			select {
			case <-wake:
				break waiting
			case <-timer.C:
				break waiting
			case done := <-w.flushes:
				waiters = append(waiters, done)
				if !failing {
					break waiting
				}
			case <-closing:
				closing, closed = nil, true
				break waiting
			}
		}
	}
}

// piece is some lines on their way into the file: pos bytes of them are there.
type piece struct {
	lines
	pos int
}

// lineFile is one file: created once, appended to only, and brought back after a full disk or a vanished mount.
//
// After an error the descriptor is let go: what became of the write is found out from the file's size when it is opened
// again. What cannot be known to be there whole is given up with a gap, never written a second time.
type lineFile struct {
	w      *Writer
	folder string
	who    identity
	id     string
	began  time.Time
	path   string // "": none was made yet
	file   *os.File
	info   fs.FileInfo // to know the file again
	offset int64
	piece  *piece
	// front must be there before anything else: the header, or what follows a line that may be torn.
	front            *piece
	headerSafe       bool
	inVain, unsynced bool
	inDoubt          tally // lost if the next sync fails
	unseen           tally // lost if the file turns out to be gone
	lost             tally
	lookAt           time.Time
	freed            int // bytes that were done with
}

// put gives the lines to write next, once those before are written.
func (f *lineFile) put(next lines) {
	if len(next.ends) > 0 {
		f.piece = &piece{lines: next}
	}
}

// writeOut writes all there is, and says whether that was anything. After an error, call it again later to go on.
func (f *lineFile) writeOut() (wrote bool, err error) {
	if err = f.ready(); err == nil {
		wrote, err = f.writePieces()
	}
	if err != nil {
		f.letGo()
	}
	return wrote, err
}

func (f *lineFile) writePieces() (wrote bool, err error) {
	for {
		next := cmp.Or(f.front, f.piece)
		if next == nil {
			return wrote, nil
		}
		if f.file == nil {
			return wrote, fs.ErrNotExist
		}
		n, err := f.file.Write(next.data[next.pos:])
		next.pos += n
		f.offset += int64(n)
		wrote = wrote || n > 0
		f.unsynced = f.unsynced || n > 0
		if err != nil {
			return wrote, err
		}
		f.finish()
	}
}

// finish lets go of what is written whole.
func (f *lineFile) finish() {
	if f.front != nil {
		f.front = nil
		return
	}
	for _, end := range f.piece.ends {
		f.inDoubt.add(end.step)
	}
	f.freed += len(f.piece.data)
	f.piece = nil
}

// sync makes what is written visible to other machines.
func (f *lineFile) sync() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Sync()
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) { // which has no such thing
		f.safe()
		return nil
	}
	if f.headerSafe {
		f.lost.merge(f.inDoubt.take())
		if info, failed := f.file.Stat(); failed == nil {
			f.offset = info.Size()
		}
		f.breakLine()
	} else {
		f.abandon()
		f.inVain = true
	}
	f.letGo()
	return err
}

// safe says that all that was written is: synced, or on a local filesystem, where a returned write is enough.
func (f *lineFile) safe() {
	f.unseen.merge(f.inDoubt.take())
	f.headerSafe, f.unsynced, f.inVain = true, false, false
}

func (f *lineFile) letGo() {
	if f.file != nil {
		_ = f.file.Close() // what is in the file is found out when it is opened again
		f.file = nil
	}
}

func (f *lineFile) ready() error {
	if f.file == nil {
		if f.path == "" {
			return f.create()
		}
		return f.reopen()
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		f.abandon()
		return f.create()
	}
	if info.Size() < f.offset { // cut by another hand, perhaps in the midst of a line
		f.settle(info.Size())
	}
	// A descriptor stays good where the file can no longer be found, as under a mount that was taken away.
	if now := time.Now(); now.After(f.lookAt) {
		f.lookAt = now.Add(lookEvery)
		if !f.inPlace() {
			f.letGo()
			return f.reopen()
		}
		f.unseen = tally{}
	}
	return nil
}

// inPlace says whether who opens the path finds this file, or would but for a folder's new name.
func (f *lineFile) inPlace() bool {
	info, err := os.Stat(f.path)
	if err == nil {
		return os.SameFile(info, f.info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return true // it tells nothing of the descriptor
	}
	if isFolder(f.folder) {
		return false
	}
	// Where a mount was taken away, what is left of the path is on another filesystem.
	above := f.folder
	for !isFolder(above) && above != filepath.Dir(above) {
		above = filepath.Dir(above)
	}
	info, err = os.Stat(above)
	return err == nil && device(info) == device(f.info)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func device(info fs.FileInfo) any {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Dev
	}
	return nil
}

// isMeantForGroup says whether a folder has the set-group-ID bit and lets its group write, or else one above it, up to
// the first without the bit: another process may just have made the one between.
func isMeantForGroup(folder string) bool {
	for {
		info, err := os.Stat(folder)
		if err != nil || info.Mode()&fs.ModeSetgid == 0 {
			return false
		}
		if info.Mode()&0o020 != 0 {
			return true
		}
		above := filepath.Dir(folder)
		if above == folder {
			return false
		}
		folder = above
	}
}

// makeFolder makes a folder and those above it. A new one lets its group write where the one above is meant for the
// group. A umask that lets the group not even read is heeded.
func makeFolder(folder string) error {
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return nil
	}
	above := filepath.Dir(folder)
	if above != folder {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		if info, failed := os.Stat(folder); failed == nil && info.IsDir() {
			return nil
		}
		return err
	}
	if made, err := os.Stat(folder); err == nil && made.Mode()&0o050 == 0o050 && isMeantForGroup(above) {
		_ = os.Chmod(folder, made.Mode()|0o020) // the sidecar reports it where it matters
	}
	return nil
}

func (f *lineFile) create() error {
	if err := makeFolder(f.folder); err != nil {
		return err
	}
	path := filepath.Join(f.folder, f.who.fileName(f.id))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			f.id = newID()
		}
		return err
	}
	f.file, f.path, f.offset, f.headerSafe = file, path, 0, false
	if f.info, err = file.Stat(); err != nil {
		return err
	}
	header := f.who.openRecord(f.id, f.began)
	header = append(header, f.lost.take().lines()...)
	if f.id != f.w.id {
		header = append(header, f.w.definitions()...)
	}
	f.putFront(header)
	return nil
}

func (f *lineFile) reopen() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) && isFolder(f.folder) {
		// A missing folder is a mount that has not come back yet; a missing file in its folder is gone for good.
		f.abandon()
		return f.create()
	}
	if err != nil {
		return err
	}
	f.file = file
	if f.info, err = file.Stat(); err != nil {
		return err
	}
	f.settle(f.info.Size())
	return nil
}

// abandon begins a new file: this one is gone, or its header may be. A line not whole in it starts afresh.
func (f *lineFile) abandon() {
	f.letGo()
	f.path, f.front = "", nil
	f.id, f.began = newID(), time.Now()
	f.lost.merge(f.unseen.take())
	f.lost.merge(f.inDoubt.take())
	if f.piece == nil {
		return
	}
	written := f.piece.whole(f.piece.pos)
	for _, end := range f.piece.ends[:written] {
		f.lost.add(end.step)
	}
	f.piece = f.piece.after(written, &f.freed)
}

// after is the piece from the n-th line on; nil if there is no such line.
func (p *piece) after(n int, freed *int) *piece {
	from := 0
	if n > 0 {
		from = p.ends[n-1].at
	}
	*freed += from
	if n == len(p.ends) {
		return nil
	}
	rest := &piece{lines: lines{data: p.data[from:]}}
	for _, end := range p.ends[n:] {
		rest.ends = append(rest.ends, lineEnd{end.at - from, end.step})
	}
	return rest
}

// settle makes the books agree with the file's real size.
func (f *lineFile) settle(size int64) {
	extra := size - f.offset
	f.offset = size
	if extra == 0 {
		return
	}
	if extra < 0 {
		if !f.headerSafe {
			f.abandon()
			return
		}
		f.lost.merge(f.unseen.take())
		f.lost.merge(f.inDoubt.take())
	} else if next := cmp.Or(f.front, f.piece); next != nil && extra <= int64(len(next.data)-next.pos) {
		// The call that failed did put bytes there. Whole lines are not written again.
		next.pos += int(extra)
		if next.data[next.pos-1] == '\n' {
			return
		}
	}
	f.breakLine()
}

// breakLine starts a new line: an LF makes what stands before it a line of its own, and a gap says what may be missing.
func (f *lineFile) breakLine() {
	if f.front != nil {
		again := bytes.TrimLeft(f.front.data, "\n")
		f.putFront(slices.Concat([]byte("\n"), again, f.lost.take().lines()))
		return
	}
	if f.piece != nil && f.piece.pos > 0 {
		written := f.piece.whole(f.piece.pos)
		if written == 0 || f.piece.ends[written-1].at < f.piece.pos {
			f.lost.add(f.piece.ends[written].step) // the line that is torn
			written++
		}
		f.piece = f.piece.after(written, &f.freed)
	}
	f.putFront(slices.Concat([]byte("\n"), f.lost.take().lines(), f.w.definitions()))
}

func (f *lineFile) putFront(data []byte) { f.front = &piece{lines: lines{data: data}} }

// --- Who writes, and where ---

type identity struct {
	actor, replica, axis, host, parent string
	rank, world, attempt               int64 // world 0: not known
	labels                             map[string]string
}

// launchers' variables of rank and world: what sets the rank of this very process comes before what only placed it.
var launchers = []struct {
	rank   string
	worlds []string
}{
	{"RANK", []string{"WORLD_SIZE"}}, // torchrun, Kubeflow, DeepSpeed, Accelerate
	{"RANK_ID", []string{"RANK_SIZE"}},
	{"JAX_PROCESS_ID", []string{"JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"}},
	{"JAX_PROCESS_INDEX", []string{"JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"}},
	{"OMPI_COMM_WORLD_RANK", []string{"OMPI_COMM_WORLD_SIZE"}},
	{"PMI_RANK", []string{"PMI_SIZE"}},
	{"PMIX_RANK", []string{"SLURM_STEP_NUM_TASKS"}},
	{"SLURM_PROCID", []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
}

// detect finds out who this process is. Rank and world come as a pair from one source, so that a rank is never combined
// with the size of another group; only a world given on its own is combined with a launcher's rank.
func detect(actor string, given *options, tell func(topic, where, message string)) identity {
	bounded := func(what, text string) string {
		kept := firstChars(text, longestActor)
		if kept != text {
			tell(what, "open", fmt.Sprintf("only its first %d characters are kept", longestActor))
		}
		return kept
	}
	// The first of an option and variables that is there and in least..end.
	number := func(what string, option *int64, least, end int64, names ...string) (int64, bool) {
		if option != nil {
			if *option >= least && *option < end {
				return *option, true
			}
			tell(what, "open", fmt.Sprintf("%d is not in %d..%d", *option, least, end))
		}
		for _, name := range names {
			text := strings.TrimSpace(os.Getenv(name))
			if text == "" {
				continue
			}
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= least && n < end {
				return n, true
			}
			tell(name, "open", fmt.Sprintf("%.40q is not an integer in %d..%d", text, least, end))
		}
		return 0, false
	}
	who := identity{
		actor:   bounded("actor", actor),
		replica: bounded("replica", cmp.Or(given.replica, os.Getenv("RLSHIP_REPLICA"), "0")),
		axis:    bounded("axis", cmp.Or(given.axis, "global_step")),
		parent:  firstChars(given.parent, longestActor),
		labels:  given.labels,
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		who.host = host
	} else {
		who.host = "unknown"
	}
	var known bool
	if who.rank, known = number("rank", given.rank, 0, ranksEnd, "RLSHIP_RANK"); !known {
		for _, launcher := range launchers {
			if who.rank, known = number(launcher.rank, nil, 0, ranksEnd, launcher.rank); known {
				who.world, _ = number(launcher.rank, nil, 1, ranksEnd+1, launcher.worlds...)
				break
			}
		}
	}
	if world, said := number("world", given.world, 1, ranksEnd+1, "RLSHIP_WORLD"); said {
		who.world = world
	}
	if who.world > 0 && who.world <= who.rank {
		tell("world", "open", fmt.Sprintf("%d is not above rank %d, so it is left out", who.world, who.rank))
		who.world = 0
	}
	if who.attempt, known = number("attempt", given.attempt, 0, stepsEnd, "RLSHIP_ATTEMPT"); !known {
		// torchrun counts anew each time the batch system starts it again, so the outer counter weighs more.
		outer, _ := number("", nil, 0, ranksEnd, "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT")
		inner, _ := number("", nil, 0, ranksEnd, "TORCHELASTIC_RESTART_COUNT")
		who.attempt = outer*1000 + inner
	}
	return who
}

// fileName is for people: who wrote a file is in its first line.
func (who *identity) fileName(id string) string {
	return fmt.Sprintf("%s-%s-r%d-%s-%d-%s.jsonl",
		safe(who.actor), safe(who.replica), who.rank, safe(who.host), os.Getpid(), id)
}

// pidSpace says which processes our pid counts among: the kernel's boot and the pid namespace. Linux alone says so.
func pidSpace() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, failed := os.Readlink("/proc/self/ns/pid")
	if err != nil || failed != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

func (who *identity) openRecord(id string, t time.Time) []byte {
	line := appendString([]byte(`{"kind":"open","rlship":1,"id":`), id)
	line = appendString(append(line, `,"actor":`...), who.actor)
	line = appendString(append(line, `,"replica":`...), who.replica)
	line = fmt.Appendf(line, `,"rank":%d`, who.rank)
	if who.world > 0 {
		line = fmt.Appendf(line, `,"world":%d`, who.world)
	}
	line = fmt.Appendf(line, `,"attempt":%d,"beat":%d,"pid":%d`, who.attempt, beatEvery/time.Second, os.Getpid())
	if space := pidSpace(); space != "" {
		line = appendString(append(line, `,"pid_space":`...), space)
	}
	line = appendString(append(line, `,"axis":`...), who.axis)
	line = appendString(append(line, `,"host":`...), who.host)
	line = fmt.Appendf(line, `,"t":%.6f,"writer":"go/%s"`, unix(t), version)
	if who.parent != "" {
		line = appendString(append(line, `,"parent":`...), who.parent)
	}
	var labels []field
	left := 8192
	for name, text := range who.labels {
		size := utf8.RuneCountInString(name) + utf8.RuneCountInString(text)
		if one, err := encoded(name, text); err == nil && size <= left {
			left -= size
			labels = append(labels, one)
		}
	}
	if members, _, err := object(labels, lineLimit/2); err == nil && len(labels) > 0 {
		line = append(append(line, `,"labels":`...), members...)
	}
	return append(line, "}\n"...)
}

// safe is a part of a file name: at most 48 letters, digits, '.' and '_', and no leading dot.
func safe(text string) string {
	kept := strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf && (c >= '0' && c <= '9' || c|' ' >= 'a' && c|' ' <= 'z' || c == '.' || c == '_') {
			return c
		}
		return '_'
	}, firstChars(text, 48))
	if strings.HasPrefix(kept, ".") {
		return "_" + kept[1:]
	}
	return cmp.Or(kept, "_")
}

func newID() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// networks are filesystems on which another client sees nothing of a write before it is synced, or may not.
var networks = []string{
	"9p", "acfs", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs",
	"nfs4", "ocfs2", "openafs", "orangefs", "panfs", "pvfs2", "quobyte", "smb3", "smbfs", "vastnfs", "virtiofs", "wekafs",
}

// isNetwork says whether path lies on a network filesystem; FUSE counts as one, as what is behind it is unknown.
func isNetwork(path string) bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	best, kind := -1, ""
	for _, line := range strings.Split(string(mounts), "\n") {
		// 36 35 98:0 /root /mount/point options [tags…] - type source superoptions
		left, right, found := strings.Cut(line, " - ")
		fields := strings.Split(left, " ")
		if !found || len(fields) < 5 {
			continue
		}
		point := unescape.Replace(fields[4])
		inside := path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")
		// >=: of two mounts on one point the later hides the earlier.
		if inside && len(point) >= best {
			best = len(point)
			kind, _, _ = strings.Cut(right, " ")
		}
	}
	return slices.Contains(networks, kind) || kind == "fuse" || strings.HasPrefix(kind, "fuse.")
}
