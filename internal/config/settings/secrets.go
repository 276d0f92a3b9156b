package settings

// secretValues returns the secrets that a file holds, by their names. A variable can have the
// secret itself: SLIDEGATE_STORE_REDIS_PASSWORD in place of SLIDEGATE_STORE_REDIS_PASSWORD_FILE.
// The settings file has only names of files.
func secretValues(s *Settings) map[string]any {
	all := map[string]any{
		"store.redis.password":          &s.Store.Redis.Password,
		"store.redis.sentinel_password": &s.Store.Redis.SentinelPassword,
		"tiers.postgres.password":       &s.Tiers.Postgres.Password,
		"tiers.http.token":              &s.Tiers.HTTP.Token,
		"secrets.key":                   &s.Secrets.Key,
		"secrets.previous_key":          &s.Secrets.PreviousKey,
	}
	for i := range s.Store.Scopes {
		one := &s.Store.Scopes[i]
		all["store.scopes."+one.Name+".redis.password"] = &one.Redis.Password
		all["store.scopes."+one.Name+".redis.sentinel_password"] = &one.Redis.SentinelPassword
	}
	return all
}
