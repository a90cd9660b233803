package controller

import "context"

// term is the loop of one leadership; its one goroutine owns all of it.
type term struct {
	c *Controller
	p Proposer
}

func newTerm(c *Controller, p Proposer) *term { return &term{c: c, p: p} }

func (t *term) run(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
