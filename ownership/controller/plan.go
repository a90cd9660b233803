package controller

// Plan decides for one keyspace what to do now. It is pure.
func Plan(in Input) Output { return Output{} }
