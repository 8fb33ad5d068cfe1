"""Frames of somebody else on a lab's link."""

# Arguments: an interface, a frame in hexadecimal, the seconds between two. It sends until this process is killed.
SEND_ON = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    link.send(bytes.fromhex(sys.argv[2]))
    time.sleep(float(sys.argv[3]))
"""
