"""A TUN device: a network interface whose packets this process reads and writes, one IP packet a call.

Made here, then moved into a namespace, where it keeps its descriptor. It goes when the descriptor does.
"""

from __future__ import annotations

import fcntl
import os
import struct

from acespec.proto.errors import UsageError
from acespec.sim.namespaces import DEVICE, INSTEAD, Namespace, device_lines, ip

CONTROL = "/dev/net/tun"
LARGEST_PACKET = 65535
# linux/if_tun.h; the numbers are those of x86, ARM, RISC-V and s390.
TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
INTERFACE_REQUEST = struct.Struct("16sH22x")
TEMPLATE = b"acetun%d"
"""The kernel fills in the first number that is free."""


class TunDevice:
    """An open device of raw IP packets. Reading and writing never block."""

    def __init__(self) -> None:
        """Raises UsageError where this machine has no TUN devices to give."""
        try:
            self.fd = os.open(CONTROL, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"cannot open {CONTROL} ({error.strerror}): load the kernel module `tun`; "
                f"in a container, start it with --device {CONTROL} --cap-add NET_ADMIN; {INSTEAD}"
            ) from error
        try:
            request = INTERFACE_REQUEST.pack(TEMPLATE, IFF_TUN | IFF_NO_PI)
            granted = fcntl.ioctl(self.fd, TUNSETIFF, request)
            # No offloads: checksums are complete, and no packet is larger than the MTU.
            fcntl.ioctl(self.fd, TUNSETOFFLOAD, 0)
        except OSError as error:
            os.close(self.fd)
            raise UsageError(f"cannot make a TUN device ({error.strerror}): use sudo, {INSTEAD}") from error
        self.name = INTERFACE_REQUEST.unpack(granted)[0].rstrip(b"\0").decode()

    def move_into(self, namespace: Namespace, *, mtu: int, own: str, peer: str) -> None:
        """Makes it the interface `ace0` of a namespace, with these addresses, and brings it up."""
        ip("link", "set", "dev", self.name, "netns", namespace.name)
        namespace.configure([f"link set dev {self.name} name {DEVICE}", *device_lines(mtu, own, peer)])
        self.name = DEVICE

    def read(self) -> bytes | None:
        """The next packet that the kernel sends out of the interface, or None."""
        try:
            return os.read(self.fd, LARGEST_PACKET)
        except BlockingIOError:
            return None

    def write(self, packet: bytes) -> None:
        """Lets the kernel receive a packet through the interface. Raises OSError if it does not take it."""
        os.write(self.fd, packet)

    def close(self) -> None:
        """Removes the device."""
        os.close(self.fd)
