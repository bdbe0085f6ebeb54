"""The W&B sink: one run for each experiment, through the W&B client in a child process.

The client is kept out of the sidecar: it may hang, leak or die, and then only its process is replaced.

In the sidecar: `sink` has the options, makes a history line of each row, and limits how many rows are under way; `link`
starts the child with its environment and key, and watches over it. Between the two travel the messages of
`protocol`, lines of JSON on two pipes.

In the child: `child` takes the messages and reports how far rows have come; `client` is what it calls of the wandb
package; `online` finds where the run on the server goes on, `offline` which folder holds the run, by `file`, the reader
of `.wandb` files; `health` notices when the client has failed.
"""

from rlship_sidecar.sinks.wandb.sink import WandbSink

__all__ = ["WandbSink"]
