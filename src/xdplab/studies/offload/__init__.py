"""What a card that offloads XDP takes and refuses: asked of netdevsim in guests, by the project's own loader."""
