// Command conform calls the writer as the lines of standard input say, for tests/writers.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rlship"
)

func main() {
	var w *rlship.Writer
	defer func() { w.Close() }()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i, field := range fields {
			fields[i] = unescaped(field)
		}
		switch fields[0] {
		case "init":
			w = open(fields[1:])
		case "exit":
			return
		case "abort":
			must(0, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		case "sleep":
			time.Sleep(time.Duration(integer(fields[1])) * time.Millisecond)
		default:
			call(w, append(fields, make([]string, 6)...), len(fields))
		}
	}
}

func open(fields []string) *rlship.Writer {
	fields = append(fields, make([]string, 8)...)
	var opts []rlship.Option
	for i, option := range map[int]func(int64) rlship.Option{2: rlship.Rank, 3: rlship.World, 5: rlship.Attempt} {
		if fields[i] != "" {
			opts = append(opts, option(integer(fields[i])))
		}
	}
	labels := map[string]string{}
	for i := 8; i+1 < len(fields); i += 2 {
		if fields[i] != "" {
			labels[fields[i]] = fields[i+1]
		}
	}
	opts = append(opts, rlship.Replica(fields[4]), rlship.Axis(fields[6]), rlship.Parent(fields[7]), rlship.Labels(labels))
	return rlship.Open(fields[0], fields[1], opts...)
}

// enter makes a call of the ledger that is given as JSON.
func enter(w *rlship.Writer, call, text string) {
	given := struct {
		Step                     *int64
		Hop, Key, Why, Precision string
		Fingerprint              string
		N                        int
		Tokens                   [][]int64
		Mask                     [][]int
		Reward, Advantage        []float64
		Sample                   []string
		Response                 *int64
		Version                  json.RawMessage
		Part                     []int64
		Retry, Passes            int64
	}{}
	must(0, json.Unmarshal([]byte(text), &given))
	step := rlship.NoStep
	if given.Step != nil {
		step = *given.Step
	}
	if call == "weights" {
		w.Weights(step, integer(string(given.Version)), given.Fingerprint)
		return
	}
	group := rlship.Group{
		N: given.N, Tokens64: given.Tokens, Reward: given.Reward, Advantage: given.Advantage, Sample: given.Sample,
		Response: given.Response, Part: given.Part, Retry: given.Retry, Passes: given.Passes, Why: given.Why,
		BF16: given.Precision == "bf16",
	}
	if given.Version != nil {
		must(0, json.Unmarshal(given.Version, &group.Version))
	}
	for _, row := range given.Mask {
		bytes := make([]byte, len(row))
		for i, x := range row {
			bytes[i] = byte(x)
		}
		group.Mask = append(group.Mask, bytes)
	}
	w.Ledger(step, given.Hop, given.Key, group)
}

// call makes the call of a line of n fields, behind which there are empty ones.
func call(w *rlship.Writer, fields []string, n int) {
	step := rlship.NoStep
	rest := func(from int, parse func(string) any) (out []any) {
		for i := from; i+1 < n; i += 2 {
			out = append(out, fields[i], parse(fields[i+1]))
		}
		return out
	}
	switch fields[0] {
	case "ledger", "weights":
		enter(w, fields[0], fields[1])
		return
	case "define", "run", "flush", "close", "burst", "threads":
	default:
		if fields[1] != "" {
			step = integer(fields[1])
		}
	}
	switch fields[0] {
	case "define":
		metric := rlship.Metric{Unit: fields[3], PerRank: fields[4] == "1", Stream: fields[5] == "1"}
		if fields[2] != "" {
			metric.Reduce = strings.Split(fields[2], ",")
		}
		w.Define(fields[1], metric)
	case "log":
		if fields[2] == "" {
			w.Log(step, rest(3, value)...)
		} else {
			w.LogWeighted(step, double(fields[2]), rest(3, value)...)
		}
	case "list":
		if fields[4] == "" {
			w.Log(step, fields[2], doubles(fields[3]))
		} else {
			w.Log(step, fields[2], rlship.Weighted{V: doubles(fields[3]), W: doubles(fields[4])})
		}
	case "summary":
		summary := rlship.Summary{Of: map[string]float64{}}
		for i := 3; i+1 < n; i += 2 {
			if fields[i] == "n" {
				summary.N = integer(fields[i+1])
			} else {
				summary.Of[fields[i]] = double(fields[i+1])
			}
		}
		w.Log(step, fields[2], summary)
	case "span":
		took := time.Duration(double(fields[3]) * float64(time.Second))
		w.RecordSpan(step, fields[2], time.Now().Add(-took), took, fields[4])
	case "event":
		w.Event(step, fields[2], rest(3, attribute)...)
	case "sample":
		score := rlship.NoScore
		if fields[3] != "" {
			score = double(fields[3])
		}
		w.Sample(step, fields[2], score, rest(4, attribute)...)
	case "run":
		switch fields[1] {
		case "config":
			w.Config(rest(2, attribute)...)
		case "summary":
			w.Summary(rest(2, attribute)...)
		default:
			w.Run(rest(2, attribute)...)
		}
	case "barrier":
		w.Barrier(step)
	case "rollback":
		w.Rollback(step)
	case "flush":
		w.Flush()
	case "close":
		w.Close()
	case "burst":
		for i := range integer(fields[1]) {
			w.Log(i, "x", i)
			w.Barrier(i)
		}
	case "threads":
		var all sync.WaitGroup
		for range integer(fields[1]) {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := range integer(fields[2]) {
					w.Log(i, "x", i)
				}
			}()
		}
		all.Wait()
	default:
		panic(fmt.Sprintf("%q is no command", fields[0]))
	}
}

func value(text string) any {
	if isText := strings.HasPrefix(text, "s:"); isText {
		return text[2:]
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return double(text)
}

func attribute(text string) any {
	kind, text, _ := strings.Cut(text, ":")
	switch kind {
	case "s":
		return text
	case "b":
		return text == "1"
	case "j":
		var out any
		must(0, json.Unmarshal([]byte(text), &out))
		return out
	}
	return value(text)
}

func doubles(text string) []float64 {
	out := []float64{}
	for _, one := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' }) {
		out = append(out, double(one))
	}
	return out
}

func double(text string) float64 {
	switch text {
	case "NaN":
		return math.NaN()
	case "-0.0":
		return math.Copysign(0, -1)
	}
	return must(strconv.ParseFloat(text, 64))
}

func integer(text string) int64 { return must(strconv.ParseInt(text, 10, 64)) }

var escape = regexp.MustCompile(`\\(x[0-9a-f]{2}|.)`)

func unescaped(field string) string {
	return escape.ReplaceAllStringFunc(field, func(code string) string {
		switch code[1] {
		case 't':
			return "\t"
		case 'n':
			return "\n"
		case 'r':
			return "\r"
		case 'x':
			return string([]byte{byte(must(strconv.ParseUint(code[2:], 16, 8)))})
		}
		return code[1:]
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
