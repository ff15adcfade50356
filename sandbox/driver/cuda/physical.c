/* Physical memory: making it, naming it, letting go of it. */
#include "physical.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../machine/share.h"
#include "handle.h"
#include "heap.h"
#include "multicast.h"

static const char MAGIC[16] = "simgpu-memory-1";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_physical_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_physical_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
    return sim_handle_get((const void *)(uintptr_t)handle, SIM_ALLOCATION);
}

CUmemGenericAllocationHandle sim_physical_handle(struct sim_physical *physical)
{
    if (physical->handles == 0)
        physical->handle = (CUmemGenericAllocationHandle)(uintptr_t)sim_handle_new(SIM_ALLOCATION, physical);
    if (physical->handle == 0)
        return 0;
    physical->handles++;
    physical->references++;
    return physical->handle;
}

/* ---- files for others ---- */

static struct sim_physical *kept; /* by files alone */
static _Atomic bool any_kept;     /* so that there is nearly always no need for the lock */

/* A description of its own, which others get copies of, with a lock: while that is held some copy is open. */
static int open_again(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

int sim_physical_file(struct sim_physical *physical)
{
    struct flock lock_of_copies = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open_again(physical->fd);
    if (fd >= 0)
        fcntl(fd, F_OFD_SETLK, &lock_of_copies);
    physical->exported |= fd >= 0;
    return fd;
}

static bool has_open_files(const struct sim_physical *physical)
{
    struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return physical->exported && fcntl(physical->fd, F_OFD_GETLK, &other) == 0 && other.l_type != F_UNLCK;
}

static void end(struct sim_physical *physical)
{
    close(physical->fd);
    if (physical->multicast != NULL)
        sim_multicast_end(physical->multicast);
    else if (physical->device != NULL && physical->share != 0)
        sim_share_leave(physical->device->unit, physical->device->slot, physical->share);
    else if (physical->device != NULL)
        sim_device_release(physical->device, physical->size);
    free(physical);
}

static void sweep(void)
{
    struct sim_physical **at = &kept;
    while (*at != NULL) {
        struct sim_physical *physical = *at;
        if (has_open_files(physical)) {
            at = &physical->next;
            continue;
        }
        *at = physical->next;
        end(physical);
    }
    any_kept = kept != NULL;
}

void sim_physical_collect(void)
{
    if (!any_kept)
        return;
    sim_physical_lock();
    sweep();
    sim_physical_unlock();
}

void sim_physical_drop(struct sim_physical *physical)
{
    if (--physical->references > 0)
        return;
    physical->next = kept;
    kept = physical;
    sweep();
}

struct sim_physical *sim_physical_new(size_t size, const CUmemAllocationProp *prop, struct sim_device *device)
{
    struct sim_physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return NULL;
    *physical = (struct sim_physical){.prop = *prop, .size = size, .device = device};
    physical->fd = sim_memory_file();
    if (physical->fd >= 0 && ftruncate(physical->fd, (off_t)(size + sizeof(struct sim_memory_label))) == 0 &&
        sim_physical_handle(physical) != 0)
        return physical;
    if (physical->fd >= 0)
        close(physical->fd);
    free(physical);
    return NULL;
}

/* ---- between processes ---- */

static int unit_index(const struct sim_device *device)
{
    return device == NULL ? -1 : sim_unit_index(device->unit);
}

bool sim_physical_share(struct sim_physical *physical)
{
    if (physical->device != NULL && physical->share == 0)
        physical->share = sim_share_make(physical->device->unit, physical->device->slot, physical->size);
    if (physical->device != NULL && physical->share == 0)
        return false;
    struct sim_memory_label label = {
        .unit = unit_index(physical->device), .share = physical->share, .size = physical->size, .prop = physical->prop};
    memcpy(label.magic, MAGIC, sizeof label.magic);
    return pwrite(physical->fd, &label, sizeof label, (off_t)physical->size) == (ssize_t)sizeof label;
}

static bool read_label(int fd, struct sim_memory_label *label)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof *label)
        return false;
    off_t at = info.st_size - (off_t)sizeof *label;
    return pread(fd, label, sizeof *label, at) == (ssize_t)sizeof *label &&
           memcmp(label->magic, MAGIC, sizeof label->magic) == 0 && label->size == (size_t)at;
}

struct sim_physical *sim_physical_import(int fd)
{
    struct sim_memory_label label;
    if (!read_label(fd, &label))
        return NULL;
    struct sim_device *device = label.unit < 0 ? NULL : sim_device_of_unit(label.unit);
    struct sim_physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL || (label.unit >= 0 && (device == NULL || !sim_device_attach(device)))) {
        free(physical);
        return NULL;
    }
    *physical = (struct sim_physical){.device = device, .prop = label.prop, .size = label.size, .share = label.share,
                                      .references = 1};
    physical->prop.location.id = device == NULL ? label.prop.location.id : device->ordinal;
    physical->fd = open_again(fd);
    if (physical->fd >= 0 && (device == NULL || sim_share_join(device->unit, device->slot, label.share)))
        return physical;
    if (physical->fd >= 0)
        close(physical->fd);
    free(physical);
    return NULL;
}
