"""Why a pod is not admitted."""


class Refusal(Exception):  # noqa: N818 - a pod is refused; the webhook did not fail
    """A pod that cannot be honoured; the message is for its author and names what to change."""
