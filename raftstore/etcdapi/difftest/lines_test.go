package difftest

import (
	"bufio"
	"io"
)

// readLines sends each line until the end.
func readLines(r io.Reader, lines chan<- string) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	for s.Scan() {
		lines <- s.Text()
	}
}
