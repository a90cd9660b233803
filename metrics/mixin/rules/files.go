package rules

// Folder is where the files go, below the root of the repository.
const Folder = "deploy/prometheus"

// Files are the files by their name in Folder.
func Files() (map[string][]byte, error) {
	return map[string][]byte{
		"leasehold.rules.yml": Write(1),
		"runbooks/README.md":  Table(),
	}, nil
}
