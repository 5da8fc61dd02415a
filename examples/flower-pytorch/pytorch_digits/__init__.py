"""An ordinary Flower app in PyTorch, made private by one line on each side."""
