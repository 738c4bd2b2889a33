/* Frames over one TCP connection that never blocks (launch/wire_internal.h). */
#include "launch/wire_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint32_t magic = 0x32475245; /* "ERG2" */

void erg_link_init(struct erg_link *link, int fd)
{
    *link = (struct erg_link){.fd = fd, .heard_ns = erg_now_ns(), .most = ERG_LINK_STRANGER_BYTES};
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on); /* small frames that others wait for */
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void erg_link_release(struct erg_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    erg_text_release(&link->in);
    erg_text_release(&link->out);
    *link = (struct erg_link){.fd = -1};
}

void erg_link_send(struct erg_link *link, struct erg_frame frame, const void *payload, size_t bytes)
{
    frame.magic = magic;
    frame.payload_bytes = bytes;
    erg_text_add_bytes(&link->out, (const char *)&frame, sizeof frame);
    if (bytes)
        erg_text_add_bytes(&link->out, payload, bytes);
}

bool erg_link_unsent(const struct erg_link *link)
{
    return link->sent < link->out.count;
}

bool erg_link_flush(struct erg_link *link)
{
    while (erg_link_unsent(link)) {
        ssize_t count =
            send(link->fd, link->out.data + link->sent, link->out.count - link->sent, MSG_NOSIGNAL);
        if (count > 0)
            link->sent += (size_t)count;
        else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        else if (count < 0 && errno != EINTR)
            return false;
    }
    link->out.count = link->sent = 0;
    return true;
}

bool erg_link_fill(struct erg_link *link)
{
    size_t left = link->in.count - link->taken;
    if (link->taken) {
        memmove(link->in.data, link->in.data + link->taken, left);
        link->in.count = left;
        link->taken = 0;
    }
    while (link->in.count < sizeof(struct erg_frame) + link->most) {
        char block[16384];
        size_t room = sizeof(struct erg_frame) + link->most - link->in.count;
        ssize_t count = recv(link->fd, block, room < sizeof block ? room : sizeof block, 0);
        if (count > 0) {
            erg_text_add_bytes(&link->in, block, (size_t)count);
            link->heard_ns = erg_now_ns();
        } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        } else if (count == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

int erg_link_next(struct erg_link *link, struct erg_frame *frame, const char **payload)
{
    size_t left = link->in.count - link->taken;
    if (left < sizeof *frame)
        return 0;
    memcpy(frame, link->in.data + link->taken, sizeof *frame);
    if (frame->magic != magic || frame->payload_bytes > link->most)
        return -1;
    if (left - sizeof *frame < frame->payload_bytes)
        return 0;
    *payload = link->in.data + link->taken + sizeof *frame;
    link->taken += sizeof *frame + (size_t)frame->payload_bytes;
    return 1;
}

void erg_link_finish(struct erg_link *link)
{
    int64_t deadline_ns = erg_now_ns() + 1000000000;
    bool told = false;
    while (link->fd >= 0 && erg_now_ns() < deadline_ns) {
        if (!erg_link_flush(link))
            return;
        /* Closing a socket with unread bytes would reset the connection, and the other side
         * would lose our last data: so shut down our side, and read until the other side does
         * the same. */
        if (!erg_link_unsent(link) && !told) {
            shutdown(link->fd, SHUT_WR);
            told = true;
        }
        struct pollfd wait = {.fd = link->fd, .events = (short)(POLLIN | (told ? 0 : POLLOUT))};
        if (poll(&wait, 1, 100) > 0 && (wait.revents & ~POLLOUT) && !erg_link_fill(link))
            return;
        link->taken = link->in.count;
    }
}

int erg_link_connect(const struct sockaddr *address, socklen_t size, int64_t deadline_ns)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int code = connect(fd, address, size) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t code_size = sizeof code;
        while (!wait.revents && erg_now_ns() < deadline_ns)
            poll(&wait, 1, 100);
        if (!wait.revents)
            code = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_size);
    }
    if (code == 0)
        return fd;
    close(fd);
    errno = code;
    return -1;
}
