/* Physical memory by handle, and whatever goes to other processes of the tenant: files through sockets, names by value.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"

#define FILE_HANDLE 1

/* A file keeps its memory on the card, charged to nobody, until somebody has taken it or closed it: until then its bytes are
 * allowed to whoever has sent it. */
typedef struct {
  uint64_t bytes;
  int sender, pid; /* entry of the watched page, and for whom it was */
  uint32_t programs;
  bool is_file;
  ipc_name name;
} letter;

static int box = -1, peers;
static char name_of_boxes[64];

/* ---- within the process ---- */

void take_handle(actor *a, object *o) {
  place wanted = device_memory;
  wanted.handle_types = dice(a, 2) ? FILE_HANDLE : 0;
  size_t bytes = (1 + dice(a, 16)) * BLOCK;
  if (!FITS(cuMemCreate(&o->value, bytes, &wanted, 0))) return;
  *o = (object){.kind = HANDLE, .value = o->value, .bytes = bytes, .shareable = wanted.handle_types};
}

static object *any_of(actor *a, kind wanted) {
  object *o = &a->objects[dice(a, LIVE)];
  return o->kind == wanted ? o : NULL;
}

/* Maps what there is a handle of already, or something new whose handle goes at once. */
void take_mapping(actor *a, object *o) {
  static const access_to access = {1, 0, 3};
  object fresh = {.kind = NOTHING};
  const object *from = any_of(a, HANDLE);
  if (!from) take_handle(a, &fresh);
  if (!from && fresh.kind == NOTHING) return;
  const object *memory = from ? from : &fresh;
  uint64_t address;
  MUST(cuMemAddressReserve(&address, memory->bytes, 0, 0, 0));
  if (FITS(cuMemMap(address, memory->bytes, 0, memory->value, 0))) {
    MUST(cuMemSetAccess(address, memory->bytes, &access, 1));
    *o = (object){.kind = MAPPING, .value = address, .bytes = memory->bytes};
  } else {
    MUST(cuMemAddressFree(address, memory->bytes));
  }
  if (!from) MUST(cuMemRelease(fresh.value));
}

void take_retained(actor *a, object *o) {
  const object *mapping = any_of(a, MAPPING);
  if (!mapping || !FITS(cuMemRetainAllocationHandle(&o->value, mapping->value))) return;
  *o = (object){.kind = HANDLE, .value = o->value, .bytes = mapping->bytes};
}

void give_physical(const object *o) {
  if (o->kind == HANDLE) {
    MUST(cuMemRelease(o->value));
  } else if (o->kind == MAPPING) {
    MUST(cuMemUnmap(o->value, o->bytes));
    MUST(cuMemAddressFree(o->value, o->bytes));
  }
}

/* ---- between processes ---- */

static struct sockaddr_un address_of(int place, socklen_t *length) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int used = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s.%d", name_of_boxes, place);
  *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
  return address;
}

/* A child of the program before this one may have the box for a moment yet. */
void sharing_open(const char *tenant, int place, int places) {
  socklen_t length;
  snprintf(name_of_boxes, sizeof name_of_boxes, "%s", tenant);
  peers = places;
  struct sockaddr_un address = address_of(place, &length);
  box = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  for (int tries = 0; bind(box, (struct sockaddr *)&address, length); usleep(1000))
    if (tries++ == 5000) must(-1, "a letter box");
}

static bool send_letter(const letter *l, int to, int file) {
  char control[CMSG_SPACE(sizeof file)] = {0};
  socklen_t length;
  struct sockaddr_un address = address_of(to, &length);
  struct iovec text = {(void *)l, sizeof *l};
  struct msghdr message = {.msg_name = &address, .msg_namelen = length, .msg_iov = &text, .msg_iovlen = 1};
  if (l->is_file) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return sendmsg(box, &message, MSG_DONTWAIT) == (ssize_t)sizeof *l;
}

static void arrived(const letter *l) {
  entry *sender = &watch->entries[l->sender];
  if (atomic_load(&sender->pid) == l->pid && atomic_load(&sender->programs) == l->programs)
    atomic_fetch_sub(&sender->uncharged, l->bytes);
}

static void send_file(actor *a, const object *o) {
  int file = -1;
  letter l = {.bytes = o->bytes, .is_file = true, .sender = (int)(mine - watch->entries), .pid = (int)getpid(),
              .programs = atomic_load(&mine->programs)};
  atomic_fetch_add(&mine->uncharged, l.bytes);
  MUST(cuMemExportToShareableHandle(&file, o->value, FILE_HANDLE, 0));
  bool sent = send_letter(&l, (int)dice(a, (unsigned)peers), file);
  close(file);
  if (!sent) arrived(&l);
}

void offer_to_others(actor *a) {
  const object *o = &a->objects[dice(a, LIVE)];
  letter l = {.bytes = o->bytes};
  if (!o->shareable || box < 0) return;
  if (o->kind == HANDLE) {
    send_file(a, o);
  } else if (o->kind == MEMORY) {
    if (cuIpcGetMemHandle(&l.name, o->value)) return; /* it has overflowed to the host */
    send_letter(&l, (int)dice(a, (unsigned)peers), -1);
  }
}

static bool receive_letter(letter *l, int *file) {
  char control[CMSG_SPACE(sizeof *file)] = {0};
  struct iovec text = {l, sizeof *l};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (recvmsg(box, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *l) return false;
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header) memcpy(file, CMSG_DATA(header), sizeof *file);
  return true;
}

/* The exporter may be gone, and its memory with it: then opening fails in whatever way. */
void take_from_others(actor *a, object *o) {
  letter l;
  int file = -1;
  uint64_t value;
  (void)a;
  if (box < 0 || !receive_letter(&l, &file)) return;
  if (l.is_file) {
    if (file >= 0 && !cuMemImportFromShareableHandle(&value, (void *)(intptr_t)file, FILE_HANDLE))
      *o = (object){.kind = HANDLE, .value = value, .bytes = l.bytes, .shareable = true};
    close(file);
    arrived(&l);
  } else if (!cuIpcOpenMemHandle_v2(&value, l.name, 1)) {
    *o = (object){.kind = IMPORTED, .value = value, .bytes = l.bytes};
  }
}

/* Throws away what has come and was not read. */
void sharing_close(void) {
  letter l;
  int file = -1;
  while (box >= 0 && receive_letter(&l, &file)) {
    if (!l.is_file) continue;
    close(file);
    arrived(&l);
  }
  close(box);
  box = -1;
}
