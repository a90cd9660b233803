package difftest

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// compare returns an error that shows both answers when they differ. It
// changes them: what is exempt is made equal.
func compare(a, b *Side, req proto.Message, x, y Answer) error {
	if x.Err != nil || y.Err != nil {
		if x.Err != nil && y.Err != nil && x.Err.Code() == y.Err.Code() && x.Err.Message() == y.Err.Message() {
			return nil
		}
		return differ(a, b, x, y, nil)
	}
	if err := a.header(x.Resp); err != nil {
		return differ(a, b, x, y, err)
	}
	if err := b.header(y.Resp); err != nil {
		return differ(a, b, x, y, err)
	}
	level(req, x.Resp, y.Resp)
	if proto.Equal(x.Resp, y.Resp) {
		return nil
	}
	return differ(a, b, x, y, nil)
}

// header checks and blanks the exempt fields of an answer's outer header.
func (s *Side) header(m proto.Message) error {
	h := m.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader()
	if err := s.check.header(h); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

func differ(a, b *Side, x, y Answer, why error) error {
	if why != nil {
		return fmt.Errorf("%w\n  %-9s %s\n  %-9s %s", why, a.Name, x, b.Name, y)
	}
	return fmt.Errorf("answers differ\n  %-9s %s\n  %-9s %s", a.Name, x, b.Name, y)
}

// String shows an answer, cut when it is long.
func (a Answer) String() string {
	var text string
	if a.Err != nil {
		text = fmt.Sprintf("%s: %q", a.Err.Code(), a.Err.Message())
	} else {
		text = show(a.Resp)
	}
	return shorten(text, 3000)
}

func shorten(text string, most int) string {
	if len(text) > most {
		return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
	}
	return text
}
