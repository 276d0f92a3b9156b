// Package calendar computes when the periods of a calendar begin and end, for limits with the
// policy window.Calendar. It has hours, days, weeks, months and years ([Unit]), and time zones
// whose clock changes. It also reads the texts of a [Spec], such as a weekday or a day of the
// month.
//
// # Periods
//
// A [Calendar] divides time into periods of one [Unit] by the clock of one time zone. Each
// period ends where the next one begins, and none is empty.
//
// The start of a period is an instant of the local clock: the anchor. A month that starts on
// day 15 at 09:00 has the anchors 15 January 09:00, 15 February 09:00, and so on. If a month
// has no such day, the anchor is on its last day.
//
// # When the local clock changes
//
// A period begins at the first instant at which the local clock shows its anchor or a later
// time:
//
//   - If the clock skips the anchor, the period begins when the clock has skipped it.
//   - If the clock shows the anchor twice, the period begins the first time.
//   - If the clock skips a whole day, that day has no period.
//
// So a day can have 23 or 25 hours, and hits of the repeated hour count in the day that they
// belong to.
//
// Hours differ in one point. If the clock shows an anchor twice, an hour begins each time. So
// an hour keeps 60 minutes, unless the clock changes by a part of an hour, as it does in
// Australia/Lord_Howe.
//
// # The data
//
// Time zones come from the machine's database, or from the program if it imports time/tzdata.
package calendar
