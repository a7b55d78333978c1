//! `ts` on the wire: RFC 3339, UTC, milliseconds, fixed width; written and read by hand, so that
//! embedders carry no date library.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

const DAY_MS: u64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z: a later clock would break the fixed width.
const LATEST_UNIX_MS: u64 = 253_402_300_799_999;

/// Appends `2026-11-30T14:02:11.123Z` (24 bytes).
pub(crate) fn put_ts(out: &mut Vec<u8>, unix_ms: u64) {
    let unix_ms = unix_ms.min(LATEST_UNIX_MS);
    let (year, month, day) = civil_from_days(unix_ms / DAY_MS);
    let of_day_ms = unix_ms % DAY_MS;
    let parts = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (of_day_ms / 3_600_000, 2, b':'),
        (of_day_ms / 60_000 % 60, 2, b':'),
        (of_day_ms / 1000 % 60, 2, b'.'),
        (of_day_ms % 1000, 3, b'Z'),
    ];
    for (value, width, after) in parts {
        put_padded(out, value, width);
        out.push(after);
    }
}

fn put_padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let start = out.len();
    out.resize(start + width, b'0');
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01. The algorithm is Howard Hinnant's
/// `civil_from_days`, for days that are not negative.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a date from that day on (Hinnant's `days_from_civil`).
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Milliseconds since the Unix epoch of an RFC 3339 time: any length of fraction (cut to
/// milliseconds), `Z` or an offset. The error says what is wrong in a few words.
pub(crate) fn parse_ts(text: &str) -> Result<u64, &'static str> {
    let bytes = text.as_bytes();
    if bytes.len() < 19 || !separators_fit(bytes) {
        return Err("not a time like 2026-11-30T14:02:11.123Z");
    }
    let date_ms = date_ms(bytes)?;
    let clock_ms = clock_ms(bytes)?;
    let (fraction_ms, zone) = split_fraction(&bytes[19..])?;
    let local_ms = i128::from(date_ms + clock_ms + fraction_ms);
    let utc_ms = local_ms - i128::from(offset_ms(zone)?);
    u64::try_from(utc_ms).map_err(|_| "before 1970")
}

fn separators_fit(bytes: &[u8]) -> bool {
    bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':'
}

fn date_ms(bytes: &[u8]) -> Result<u64, &'static str> {
    let (year, month, day) = (digits(&bytes[..4])?, digits(&bytes[5..7])?, digits(&bytes[8..10])?);
    if year < 1970 {
        return Err("before 1970");
    }
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return Err("no such date");
    }
    Ok(days_from_civil(year, month, day) * DAY_MS)
}

fn days_in_month(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A second of 60 is a leap second and counts as the next one.
fn clock_ms(bytes: &[u8]) -> Result<u64, &'static str> {
    let (hour, minute, second) =
        (digits(&bytes[11..13])?, digits(&bytes[14..16])?, digits(&bytes[17..19])?);
    if hour > 23 || minute > 59 || second > 60 {
        return Err("no such time of day");
    }
    Ok(((hour * 60 + minute) * 60 + second) * 1000)
}

fn split_fraction(rest: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let Some(fraction) = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) else {
        return Ok((0, rest));
    };
    let length = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return Err("no digits after the point");
    }
    let (fraction, zone) = fraction.split_at(length);
    let ms = digits(&fraction[..length.min(3)])? * [100, 10, 1][length.min(3) - 1];
    Ok((ms, zone))
}

fn offset_ms(zone: &[u8]) -> Result<i64, &'static str> {
    let (sign, rest) = match zone {
        [b'Z' | b'z'] => return Ok(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        [] => return Err("no time zone: end it with Z or an offset such as +02:00"),
        _ => return Err("not a time zone"),
    };
    let (hours, minutes) = match rest {
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?),
        _ => return Err("not a time zone"),
    };
    if hours > 23 || minutes > 59 {
        return Err("no such time zone");
    }
    Ok(sign * (hours * 60 + minutes) as i64 * 60_000)
}

fn digits(bytes: &[u8]) -> Result<u64, &'static str> {
    bytes.iter().try_fold(0, |value, byte| match byte {
        b'0'..=b'9' => Ok(value * 10 + u64::from(byte - b'0')),
        _ => Err("not a digit where one belongs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(unix_ms: u64) -> String {
        let mut out = Vec::new();
        put_ts(&mut out, unix_ms);
        String::from_utf8(out).unwrap()
    }

    /// Expected values come from `date -u -d @SECONDS`.
    #[test]
    fn writes_and_reads_the_same_time() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_796_047_331_123, "2026-11-30T14:02:11.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LATEST_UNIX_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(written(unix_ms), text);
            assert_eq!(parse_ts(text), Ok(unix_ms), "{text}");
        }
        assert_eq!(written(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn every_day_of_four_centuries_survives() {
        for day in 0..146_097 {
            let unix_ms = day * DAY_MS + day;
            assert_eq!(parse_ts(&written(unix_ms)), Ok(unix_ms));
        }
    }

    #[test]
    fn reads_what_others_write() {
        const MS: u64 = 1_796_047_331_120;
        for text in [
            "2026-11-30T14:02:11.12Z",
            "2026-11-30T14:02:11.120999999999999999999Z",
            "2026-11-30 16:02:11.120+02:00",
            "2026-11-30t09:02:11,12-0500",
            "2026-12-01T00:02:11.12+10:00",
            "2026-11-30T14:02:11.120z",
        ] {
            assert_eq!(parse_ts(text), Ok(MS), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "Z",
            "2026-11-30",
            "2026-11-30T14:02:11",
            "2026-11-30T14:02:11.Z",
            "2026-11-30T14:02:11.1",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T14:02:61Z",
            "2026-11-30T14:02:11+2",
            "2026-11-30T14:02:11+24:00",
            "2026-11-30T14:02:11Zjunk",
            "+026-11-30T14:02:11Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "２０２６-11-30T14:02:11Z",
        ] {
            assert!(parse_ts(text).is_err(), "{text:?} was taken for a time");
        }
    }
}
