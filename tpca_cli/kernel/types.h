// What the C of every kernel begins with: names of numbers, small arithmetic, and how functions are offered to Python.

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;

#define EXPORT(name) __attribute__((export_name(#name)))
#define INLINE static inline __attribute__((always_inline))

INLINE i32 least(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 most(i32 a, i32 b) { return a > b ? a : b; }
INLINE i32 clipped(i32 x, i32 low, i32 high) { return x < low ? low : x > high ? high : x; }
INLINE i32 digits_of(u32 x) { return x ? 32 - __builtin_clz(x) : 0; }  // binary ones
