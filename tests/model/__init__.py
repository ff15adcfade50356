"""An administrator's model of the extender: random histories in virtual time, judged by what the documents promise."""
