package main

import "github.com/spf13/cobra"

// commandGroups is the list of all commands, in the order of --help.
func commandGroups(e env) []commandGroup {
	return []commandGroup{
		{"Start", []*cobra.Command{
			newDevCommand(e),
			newDemoCommand(e),
			newServerCommand(e),
			newRunCommand(e),
			newHoldCommand(e),
		}},
		{"Operate", []*cobra.Command{
			newStatusCommand(e),
			newKeyspaceCommand(e),
			newPartitionsCommand(e),
			newLocateCommand(e),
			newWorkersCommand(e),
			newEventsCommand(e),
			newRaftCommand(e),
		}},
		{"This program", []*cobra.Command{
			newVersionCommand(e),
			newBenchCommand(e),
			newCompletionCommand(e),
			newDemoWorkerCommand(e), // hidden
			newBenchWorkerCommand(e),
			newKeeperCommand(e), // hidden
		}},
	}
}
