// Counts the bytes that malloc has allocated, and their peak. Load it before
// glibc (LD_PRELOAD), to whose functions it forwards.
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void* block);

static long in_use, peak;

static void* add(void* block) {
  if (block == NULL) return NULL;
  const long size = (long)malloc_usable_size(block);
  const long now = __atomic_add_fetch(&in_use, size, __ATOMIC_RELAXED);
  long most = __atomic_load_n(&peak, __ATOMIC_RELAXED);
  while (now > most &&
         !__atomic_compare_exchange_n(&peak, &most, now, 1, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return block;
}

static void subtract(long size) {
  __atomic_sub_fetch(&in_use, size, __ATOMIC_RELAXED);
}

void* malloc(size_t size) { return add(__libc_malloc(size)); }

void* calloc(size_t count, size_t size) {
  return add(__libc_calloc(count, size));
}

void* memalign(size_t alignment, size_t size) {
  return add(__libc_memalign(alignment, size));
}

void* aligned_alloc(size_t alignment, size_t size) {
  return add(__libc_memalign(alignment, size));
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  void* block = add(__libc_memalign(alignment, size));
  if (block == NULL) return ENOMEM;
  *result = block;
  return 0;
}

void* realloc(void* old, size_t size) {
  const long before = (long)malloc_usable_size(old);
  void* block = __libc_realloc(old, size);
  if (block != NULL || size == 0) subtract(before);
  return add(block);
}

void free(void* block) {
  if (block != NULL) subtract((long)malloc_usable_size(block));
  __libc_free(block);
}

// Resets the peak to the bytes in use and returns these.
long malloc_peak_reset(void) {
  const long now = __atomic_load_n(&in_use, __ATOMIC_RELAXED);
  __atomic_store_n(&peak, now, __ATOMIC_RELAXED);
  return now;
}

// Returns the largest number of bytes in use since malloc_peak_reset.
long malloc_peak(void) { return __atomic_load_n(&peak, __ATOMIC_RELAXED); }
