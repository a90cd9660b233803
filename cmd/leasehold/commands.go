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
		{"Coordinate", []*cobra.Command{
			newKVCommand(e),
			newLockCommand(e),
			newElectCommand(e),
			newSemaphoreCommand(e),
			newSessionCommand(e),
			newSeqCommand(e),
		}},
		{"Operate", []*cobra.Command{
			newStatusCommand(e),
			newDoctorCommand(e),
			newCheckCommand(e),
			newDebugCommand(e),
			newKeyspaceCommand(e),
			newPartitionsCommand(e),
			newLocateCommand(e),
			newRingCommand(e),
			newWorkersCommand(e),
			newEventsCommand(e),
			newClusterCommand(e),
			newRaftCommand(e),
			newGossipCommand(e),
			newTLSCommand(e),
			newCredentialCommand(e),
			newBackupCommand(e),
			newAuditCommand(e),
		}},
		{"This program", []*cobra.Command{
			newVersionCommand(e),
			newConfigCommand(e),
			newBenchCommand(e),
			newCompletionCommand(e),
			newDemoWorkerCommand(e), // hidden
			newBenchWorkerCommand(e),
			newKeeperCommand(e), // hidden
		}},
	}
}
