"""The node agent: discovers cards, answers the kubelet, guards what runs on the node."""
