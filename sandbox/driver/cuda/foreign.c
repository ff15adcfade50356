/* Mappings of memory that belongs to others. */
#include "foreign.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

struct foreign {
    enum sim_foreign_kind kind;
    uintptr_t base;
    size_t size;
    struct sim_device *device;
    int32_t pid, fd; /* whose, and which of its files; pid 0: external memory */
    struct sim_physical *physical; /* of external memory */
    int references;
    struct foreign *next;
};

static const char MAGIC[8] = "simipc1";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct foreign *all;

CUresult sim_foreign_name(CUdeviceptr address, unsigned int kinds, void *out)
{
    struct sim_allocation found;
    struct sim_foreign_name name = {.pid = (int32_t)getpid()};
    if (out == NULL || !sim_heap_find(address, &found) || (kinds >> found.kind & 1) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_engine_drain(found.device);
    size_t offset = 0, size = 0;
    name.fd = sim_heap_share(address, &offset, &size);
    if (name.fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    name.unit = sim_unit_index(found.device->unit);
    name.offset = offset;
    name.size = size;
    memcpy(name.magic, MAGIC, sizeof name.magic);
    memset(out, 0, CU_IPC_HANDLE_SIZE);
    memcpy(out, &name, sizeof name);
    return CUDA_SUCCESS;
}

/* ---- mapping; all under the lock ---- */

static CUresult map(struct foreign *one, int fd, size_t offset)
{
    one->base = sim_space_take(sim_blocks(one->size), SIM_BLOCK, false);
    if (one->base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = mmap((void *)one->base, one->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    if (memory == MAP_FAILED || !sim_heap_note(one->base, sim_blocks(one->size), SIM_MEMORY_FOREIGN, one->device)) {
        sim_space_give(one->base, sim_blocks(one->size));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    one->next = all;
    all = one;
    return CUDA_SUCCESS;
}

static struct foreign *find_open(const struct sim_foreign_name *name, enum sim_foreign_kind kind)
{
    struct foreign *one = all;
    while (one != NULL && (one->kind != kind || one->pid != name->pid || one->fd != name->fd))
        one = one->next;
    return one;
}

static CUresult open_new(const struct sim_foreign_name *name, enum sim_foreign_kind kind, struct foreign **out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)name->pid, (int)name->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    struct foreign *one = calloc(1, sizeof *one);
    CUresult result = one == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        *one = (struct foreign){.kind = kind, .size = name->size, .device = sim_device_of_unit(name->unit), .pid = name->pid,
                                .fd = name->fd};
        result = one->device == NULL ? CUDA_ERROR_INVALID_DEVICE : map(one, fd, 0);
    }
    close(fd);
    if (result == CUDA_SUCCESS)
        *out = one;
    else
        free(one);
    return result;
}

CUresult sim_foreign_open(const void *text, enum sim_foreign_kind kind, CUdeviceptr *out)
{
    struct sim_foreign_name name;
    memcpy(&name, text, sizeof name);
    if (out == NULL || memcmp(name.magic, MAGIC, sizeof name.magic) != 0 || name.offset >= name.size)
        return CUDA_ERROR_INVALID_VALUE;
    if (name.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    struct foreign *one = find_open(&name, kind);
    CUresult result = one != NULL ? CUDA_SUCCESS : open_new(&name, kind, &one);
    if (result == CUDA_SUCCESS) {
        one->references++;
        *out = one->base + name.offset;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult sim_foreign_map(struct sim_physical *physical, size_t offset, size_t size, CUdeviceptr *out)
{
    struct foreign *one = calloc(1, sizeof *one);
    if (one == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *one = (struct foreign){.kind = SIM_FOREIGN_EXTERNAL, .size = size, .device = physical->device, .physical = physical,
                            .references = 1};
    pthread_mutex_lock(&lock);
    CUresult result = map(one, physical->fd, offset);
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) {
        free(one);
        return result;
    }
    sim_physical_lock();
    physical->references++;
    sim_physical_unlock();
    *out = one->base;
    return CUDA_SUCCESS;
}

/* Takes it off the list when its last opening ends; *device tells whose work may use it. */
static bool let_go(CUdeviceptr address, unsigned int kinds, struct foreign **out)
{
    struct foreign **at = &all;
    while (*at != NULL && (address - (*at)->base >= (*at)->size || (kinds >> (*at)->kind & 1) == 0))
        at = &(*at)->next;
    struct foreign *one = *at;
    if (one == NULL)
        return false;
    if (--one->references == 0) {
        *at = one->next;
        *out = one;
    }
    return true;
}

bool sim_foreign_close(CUdeviceptr address, unsigned int kinds)
{
    struct foreign *one = NULL;
    pthread_mutex_lock(&lock);
    bool found = let_go(address, kinds, &one);
    pthread_mutex_unlock(&lock);
    if (one == NULL)
        return found;
    if (one->device != NULL)
        sim_engine_drain(one->device);
    sim_heap_forget(one->base);
    sim_space_give(one->base, sim_blocks(one->size));
    sim_physical_lock();
    if (one->physical != NULL)
        sim_physical_drop(one->physical);
    sim_physical_unlock();
    free(one);
    return true;
}
