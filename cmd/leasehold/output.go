package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputWide  outputFormat = "wide" // a table with all columns
	outputJSON  outputFormat = "json"
)

// String implements pflag.Value.
func (o *outputFormat) String() string { return string(*o) }

// Type implements pflag.Value.
func (*outputFormat) Type() string { return "format" }

// Set implements pflag.Value.
func (o *outputFormat) Set(s string) error {
	switch f := outputFormat(s); f {
	case outputTable, outputWide, outputJSON:
		*o = f
		return nil
	}
	return fmt.Errorf("want table, wide or json")
}

// protoJSON is how the API's messages are written: names as in the proto file,
// all fields, also those that are zero, so that scripts find them.
var protoJSON = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}

// marshalMessage writes one message on one line. protojson varies its blanks
// from build to build on purpose, which would break every comparison.
func marshalMessage(m proto.Message) ([]byte, error) {
	raw, err := protoJSON.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b.Bytes(), nil
}

// printMessage writes one message, indented.
func printMessage(w io.Writer, m proto.Message) error {
	line, err := marshalMessage(m)
	if err != nil {
		return err
	}
	return printIndented(w, line)
}

// printItems writes {"items":[…]}.
func printItems[M proto.Message](w io.Writer, items []M) error {
	var b bytes.Buffer
	b.WriteString(`{"items":[`)
	for i, m := range items {
		line, err := marshalMessage(m)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(line)
	}
	b.WriteString(`]}`)
	return printIndented(w, b.Bytes())
}

// printLine writes one message on a line of its own, for streams.
func printLine(w io.Writer, m proto.Message) error {
	line, err := marshalMessage(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// printJSONLine writes any value on a line of its own, for streams.
func printJSONLine(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// printJSON writes any value, indented.
func printJSON(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return printIndented(w, raw)
}

func printIndented(w io.Writer, raw []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// table collects rows and writes them aligned. Columns that were added as wide
// appear with -o wide only.
type table struct {
	e       env
	columns []column
	rows    [][]string
}

type column struct {
	title string
	wide  bool
	right bool // numbers
}

func newTable(e env, columns ...column) *table { return &table{e: e, columns: columns} }

func col(title string) column     { return column{title: title} }
func numCol(title string) column  { return column{title: title, right: true} }
func wideCol(title string) column { return column{title: title, wide: true} }

// row adds one cell per column.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, or the given line when it has no rows.
func (t *table) print(empty string) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(t.e.stderr, empty)
		return err
	}
	var shown []int
	for i, c := range t.columns {
		if !c.wide || t.e.flags.output == outputWide {
			shown = append(shown, i)
		}
	}
	width := make([]int, len(t.columns))
	for _, i := range shown {
		width[i] = utf8.RuneCountInString(t.columns[i].title)
		for _, r := range t.rows {
			r[i] = cell(r[i])
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	var b strings.Builder
	line := func(cells func(i int) string, paint func(i int, s string) string) {
		var l strings.Builder
		for n, i := range shown {
			s := cells(i)
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			switch {
			case t.columns[i].right:
				l.WriteString(pad + paint(i, s))
			case n == len(shown)-1:
				l.WriteString(paint(i, s))
			default:
				l.WriteString(paint(i, s) + pad)
			}
			if n < len(shown)-1 {
				l.WriteString("  ")
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " "))
		b.WriteByte('\n')
	}
	line(func(i int) string { return t.columns[i].title }, func(_ int, s string) string { return t.e.paint(bold, s) })
	for _, r := range t.rows {
		line(func(i int) string { return r[i] }, func(_ int, s string) string { return t.e.paint(colourOf[s], s) })
	}
	_, err := io.WriteString(t.e.stdout, b.String())
	return err
}

// cell makes a value safe for a terminal: what does not print, or is no UTF-8, is
// quoted, so that no name can move the cursor. An empty one is a dash.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

const (
	bold   = "1"
	green  = "32"
	yellow = "33"
	red    = "31"
)

// colourOf are the words that an eye looks for.
var colourOf = map[string]string{
	"owned": green, "live": green, "alive": green, "leader": green, "yes": green,
	"draining": yellow, "leaving": yellow, "suspect": yellow, "blocked": yellow, "deleting": yellow,
	"unowned": red, "quarantined": red, "dead": red, "gone": red, "evicted": red, "superseded": red,
}

func (e env) paint(code, s string) string {
	if code == "" || s == "" || !e.colour() {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// say writes a line for a person to stdout.
func (e env) say(format string, args ...any) error {
	_, err := fmt.Fprintf(e.stdout, format+"\n", args...)
	return err
}

// warn writes a line for a person to stderr.
func (e env) warn(format string, args ...any) error {
	_, err := fmt.Fprintf(e.stderr, format+"\n", args...)
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number[N int32 | int64 | uint32 | uint64](n N) string { return fmt.Sprintf("%d", n) }

// tokenText is a token, or nothing where none was ever granted.
func tokenText(t uint64) string {
	if t == 0 {
		return ""
	}
	return number(t)
}
