package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Reasons why something from the network was thrown away.
const (
	rejectedLabel    = "label"
	rejectedDecrypt  = "decrypt"
	rejectedDecode   = "decode"
	rejectedStranger = "stranger"
	rejectedOverflow = "overflow"
	rejectedSize     = "size"
)

// logEvery limits lines of one kind that a stranger could cause without end.
const logEvery = 10 * time.Second

// logWriter takes memberlist's lines, "[LEVEL] memberlist: text", to slog. They
// are also the only place where memberlist tells of packets it refused, so
// they are counted here.
type logWriter struct {
	g   *Gossip
	log *slog.Logger

	mu     sync.Mutex
	limits map[string]*limit
}

type limit struct {
	next    time.Time
	dropped int
}

func newLogWriter(g *Gossip) *logWriter {
	return &logWriter{g: g, log: g.log, limits: make(map[string]*limit)}
}

// Write implements io.Writer; it is called once per line.
func (w *logWriter) Write(b []byte) (int, error) {
	level, text := splitLine(string(bytes.TrimSpace(b)))
	if w.aboutPackets(text) {
		return len(b), nil
	}
	if strings.Contains(text, foreignText) {
		level = slog.LevelDebug // said where it was refused, with both ids
	}
	kind := ""
	if level >= slog.LevelWarn { // at debug level it repeats what others told us
		kind = rejectionOf(text)
	}
	switch {
	case kind == rejectedStranger: // counted where it was refused
	case kind != "":
		w.g.cfg.Observer.Rejected(kind)
	case strings.HasPrefix(text, "Conflicting address"):
		kind = "conflict"
	}
	if kind == "" {
		w.log.Log(context.Background(), level, "gossip: "+text)
	} else if ok, dropped := w.allow(kind); ok {
		w.log.Warn("gossip: "+text, "kind", kind, "more_since_last_line", dropped)
	}
	return len(b), nil
}

// aboutPackets takes what memberlist says of packets that were not answered.
// It repeats it for each, so the line itself goes no further.
func (w *logWriter) aboutPackets(text string) bool {
	if name, ok := between(text, "Failed UDP ping: ", " (timeout reached)"); ok {
		w.g.packets.fail(name, time.Now())
		return true
	}
	if name, ok := between(text, "Was able to connect to ", " over TCP but UDP probes failed"); ok {
		w.g.packetsFail(name)
		return true
	}
	return false
}

// between returns what stands between the beginning of a text and a later part.
func between(text, before, after string) (string, bool) {
	rest, ok := strings.CutPrefix(text, before)
	if !ok {
		return "", false
	}
	i := strings.LastIndex(rest, after)
	if i < 0 {
		return "", false
	}
	return rest[:i], true
}

// allow tells whether a line of this kind may be written now, and how many were
// dropped since the last one.
func (w *logWriter) allow(kind string) (ok bool, dropped int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.limits[kind]
	if l == nil {
		l = &limit{}
		w.limits[kind] = l
	}
	now := time.Now()
	if now.Before(l.next) {
		l.dropped++
		return false, 0
	}
	dropped, l.dropped, l.next = l.dropped, 0, now.Add(logEvery)
	return true, dropped
}

// splitLine separates memberlist's level. Its errors are about single packets
// and connections, nothing that we cannot go on after: warnings for us.
func splitLine(line string) (slog.Level, string) {
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if name, text, ok := strings.Cut(rest, "] "); ok {
			line = text
			switch name {
			case "DEBUG":
				level = slog.LevelDebug
			case "WARN", "ERR":
				level = slog.LevelWarn
			}
		}
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}

// rejections maps memberlist's words to reasons; the first match counts.
var rejections = [...]struct{ text, reason string }{
	{"unacceptable label", rejectedLabel},
	{"label header", rejectedLabel},
	{"cannot decode label", rejectedLabel},
	{"Decrypt packet failed", rejectedDecrypt},
	{"not encrypted", rejectedDecrypt},
	{"no installed keys could decrypt", rejectedDecrypt},
	{"decrypt", rejectedDecrypt},
	{"is not configured", rejectedDecrypt}, // encrypted, and we gossip in the clear
	{"handler queue full", rejectedOverflow},
	{"gnoring alive message", rejectedStranger},
	{"gnoring an alive message", rejectedStranger},
	{"checksum", rejectedDecode},
	{"ailed to decode", rejectedDecode},
	{"ailed to decompress", rejectedDecode},
	{"truncated", rejectedDecode},
	{"msg type", rejectedDecode},
	{"invalid msgType", rejectedDecode},
	{"missing message type", rejectedDecode},
	{"packet too short", rejectedDecode},
	{"failed to receive", rejectedDecode},
	{"Failed to receive", rejectedDecode},
	{"Failed to read remote state", rejectedDecode},
}

func rejectionOf(text string) string {
	for _, r := range rejections {
		if strings.Contains(text, r.text) {
			return r.reason
		}
	}
	return ""
}

func isInUseText(err error) bool { return strings.Contains(err.Error(), "address already in use") }
