"""What a card that offloads XDP accepts and refuses: tried on netdevsim in guests, with the project's own loader."""
