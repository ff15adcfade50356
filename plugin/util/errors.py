"""The two ways in which a container does not start yet."""


class GateError(Exception):
    """A container may not start; the text is shown in the pod's events and names what contradicts what."""


class NotYetError(Exception):
    """Something that may well be there a moment later is not; says what."""
