# What the guest's programs write on a day: a database is made, later changed, and logs
# grow. The same day always writes the same.
import os, random, sqlite3, sys

day = int(sys.argv[1])
rnd = random.Random(day)
words = ["".join(rnd.choice("etaoinshrdlu") for _ in range(rnd.randint(2, 9))) for _ in range(4000)]
updates, inserts = {0: (0, 600_000), 1: (3000, 600), 2: (3000, 600), 3: (300, 60)}[day]


def row():
    return rnd.randrange(1 << 31), " ".join(rnd.choices(words, k=60)), rnd.randbytes(200)


os.makedirs("/srv", exist_ok=True)
db = sqlite3.connect("/srv/app.db")
db.execute("pragma journal_mode=wal")
if day == 0:
    db.execute("create table t (id integer primary key, k integer, text text, data blob)")
    db.execute("create index tk on t (k)")
rows = db.execute("select count(*) from t").fetchone()[0]
for i in range(updates):
    k, text, _ = row()
    db.execute("update t set k=?, text=? where id=?", (k, text, rnd.randint(1, rows)))
    if i % 50 == 49:
        db.commit()
for i in range(inserts):
    db.execute("insert into t (k, text, data) values (?, ?, ?)", row())
    if i % (10_000 if day == 0 else 50) == 0:
        db.commit()
db.commit()
db.execute("pragma wal_checkpoint(truncate)")
db.close()

if day > 0:
    for name in ("access.log", "app.log"):
        with open("/var/log/" + name, "a") as log:
            for i in range(60_000):
                text = " ".join(rnd.choices(words, k=15))
                log.write(f"2026-12-0{day}T{i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}Z app[{rnd.randrange(32768)}]: {text}\n")
